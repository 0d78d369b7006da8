// std::sort of what lies in a row, without recursion: the stack of a worker is fixed. The library's own, which other
// iterators get, calls itself.
#pragma once

namespace abele {

template <class T, class Less> inline void sift(T *first, long root, long count, Less less) {
  T value = static_cast<T &&>(first[root]);
  for (long child; (child = 2 * root + 1) < count; root = child) {
    if (child + 1 < count && less(first[child], first[child + 1]))
      ++child;
    if (!less(value, first[child]))
      break;
    first[root] = static_cast<T &&>(first[child]);
  }
  first[root] = static_cast<T &&>(value);
}

} // namespace abele

namespace std {

/// A heap sort.
template <class T, class Less> inline void sort(T *first, T *last, Less less) {
  const long count = last - first;
  for (long root = count / 2 - 1; root >= 0; --root)
    abele::sift(first, root, count, less);
  for (long end = count - 1; end > 0; --end) {
    T most = static_cast<T &&>(first[0]);
    first[0] = static_cast<T &&>(first[end]);
    first[end] = static_cast<T &&>(most);
    abele::sift(first, 0, end, less);
  }
}
template <class T> inline void sort(T *first, T *last) {
  std::sort(first, last, [](const T &a, const T &b) { return a < b; });
}

} // namespace std
