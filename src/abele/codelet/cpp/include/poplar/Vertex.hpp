// Vertices and their fields. A field is a pointer, or a pointer and a length, that the host fills in before compute().
#pragma once

#include <poplar/FieldTypes.hpp>
#include <poplar/HalfFloat.hpp>
#include <poplar/QuarterFloat.hpp>
#include <poplar/VectorTypes.hpp>

#include <abele/native.hpp>
#include <abele/sort.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#ifndef ABELE_SIZE_TYPE
#define ABELE_SIZE_TYPE unsigned // what size_t is on the tile
#endif

namespace poplar {

/// Work for one worker.
class Vertex {
public:
  static constexpr unsigned numWorkers() { return 6; }
  static unsigned getWorkerIndex() { return abele_worker_id(); }
};

/// Work that all six workers share: compute(unsigned workerId).
class MultiVertex {
public:
  static constexpr unsigned numWorkers() { return 6; }
  static unsigned getWorkerIndex() { return abele_worker_id(); }
};

/// Work of the supervisor.
class SupervisorVertex {
public:
  static constexpr unsigned numWorkers() { return 6; }
  static unsigned getWorkerIndex() { return abele_worker_id(); }
};

/// Work of the supervisor where it is in assembly, else of one worker.
template <bool InAssembly>
using SupervisorVertexIf = typename std::conditional<InAssembly, SupervisorVertex, Vertex>::type;
/// Work of all workers where it is in assembly, else of one.
template <bool InAssembly> using MultiVertexIf = typename std::conditional<InAssembly, MultiVertex, Vertex>::type;

/// Work whose exchange is hand-written; only the hardware has it.
class ExternalExchangeVertex {};

namespace abele_fields {

template <class T> constexpr bool has_size(T layout) { return layout == T::SPAN || layout == T::SHORT_SPAN; }

/// How an element lies in memory: 64-bit types of this compiler have 32 bits on the tile.
template <class T> struct Stored {
  using type = T;
};
template <> struct Stored<long> {
  using type = int;
};
template <> struct Stored<unsigned long> {
  using type = unsigned;
};
template <> struct Stored<double> {
  using type = float;
};
template <class T> struct Stored<const T> : Stored<T> {}; // codelets cast what they read
template <class T> using stored_t = typename Stored<T>::type;

/// Elements in a row. Those of an Input can be referred to as if they could be written; codelets cast them.
template <class T, bool Sized> class Elements {
protected:
  T *pointer;
  unsigned length;
  MetadataType metadata;

public:
  using value_type = typename std::remove_const<T>::type;
  using reference = T &;
  using iterator = T *;
  using const_iterator = const T *;
  using size_type = ABELE_SIZE_TYPE;

  T &operator[](std::size_t i) const { return pointer[i]; }
  T &operator*() const { return *pointer; }
  const Elements *operator->() const { return this; }
  T *data() const { return pointer; }
  T *begin() const { return pointer; }
  const T *cbegin() const { return pointer; }
  T &front() const { return *pointer; }

  ABELE_SIZE_TYPE size() const {
    static_assert(Sized, "a vector of this layout is a pointer alone: it has no size()");
    return length;
  }
  bool empty() const { return size() == 0; }
  /// What the bits of 8-bit floats mean: format and scale of the tensor.
  QuarterMetadata getMetadata() const {
    static_assert(std::is_same<value_type, quarter>::value, "only quarters have metadata");
    return metadata;
  }
  T *end() const { return pointer + size(); }
  const T *cend() const { return pointer + size(); }
  T &back() const { return pointer[size() - 1]; }
};

/// One element.
template <class T> class Element {
protected:
  T *pointer;

public:
  using value_type = typename std::remove_const<T>::type;
  T &operator*() const { return *pointer; }
  T *operator->() const { return pointer; }
  T &get() const { return *pointer; }
  operator T &() const { return *pointer; }
};

template <class T> class WritableElement : public Element<T> {
public:
  WritableElement &operator=(const T &value) {
    *this->pointer = value;
    return *this;
  }
  WritableElement &operator=(const WritableElement &other) {
    *this->pointer = *other.pointer;
    return *this;
  }
};

} // namespace abele_fields

/// State: an array of the vertex; or rows and elements wired one by one, Vector<Input<...>>.
template <class T, VectorLayout L = VectorLayout::SPAN, unsigned MinAlign = alignof(T), bool Interleaved = false>
class Vector : public abele_fields::Elements<abele_fields::stored_t<T>, abele_fields::has_size(L)> {};

/// Rows of different length in a compact table.
template <class T, VectorListLayout L = VectorListLayout::DELTAN, unsigned MinAlign = alignof(T),
          bool Interleaved = false>
class VectorList {};

template <class T> class Input : public abele_fields::Element<abele_fields::stored_t<T>> {};
template <class T> class Output : public abele_fields::WritableElement<abele_fields::stored_t<T>> {
public:
  using abele_fields::WritableElement<abele_fields::stored_t<T>>::operator=;
};
template <class T> class InOut : public abele_fields::WritableElement<abele_fields::stored_t<T>> {
public:
  using abele_fields::WritableElement<abele_fields::stored_t<T>>::operator=;
};

namespace abele_fields {

template <class T> constexpr bool is_number = std::is_arithmetic<T>::value || std::is_same<T, half>::value;

// Single halves in expressions: the compiler's own operators would not know which type to convert them to.
template <class A>
constexpr bool is_half_element = std::is_base_of<Element<half>, A>::value || std::is_base_of<Element<const half>, A>::value;
template <class A> inline auto plain(const A &a) {
  if constexpr (is_half_element<A>) {
    return half(*a);
  } else {
    return a;
  }
}

} // namespace abele_fields

#define ABELE_HALF_OPERATOR(OP)                                                                                        \
  template <class A, class B,                                                                                          \
            typename std::enable_if<abele_fields::is_half_element<A> || abele_fields::is_half_element<B>, int>::type = 0>          \
  inline auto operator OP(const A &a, const B &b) {                                                                    \
    return abele_fields::plain(a) OP abele_fields::plain(b);                                                                       \
  }
ABELE_HALF_OPERATOR(+)
ABELE_HALF_OPERATOR(-)
ABELE_HALF_OPERATOR(*)
ABELE_HALF_OPERATOR(/)
ABELE_HALF_OPERATOR(<)
ABELE_HALF_OPERATOR(>)
ABELE_HALF_OPERATOR(<=)
ABELE_HALF_OPERATOR(>=)
ABELE_HALF_OPERATOR(==)
ABELE_HALF_OPERATOR(!=)
#undef ABELE_HALF_OPERATOR

// An element on either side of an assignment that computes: *y += x, y += 1.
#define ABELE_ASSIGNMENT(OP)                                                                                           \
  template <class T, class A,                                                                                          \
            typename std::enable_if<abele_fields::is_number<T> && abele_fields::is_half_element<A>, int>::type = 0>    \
  inline T &operator OP##=(T &a, const A &b) {                                                                         \
    return a = static_cast<T>(a OP half(*b));                                                                          \
  }                                                                                                                    \
  template <class T, class B>                                                                                          \
  inline T &operator OP##=(const abele_fields::WritableElement<T> &a, const B &b) {                                    \
    return *a = static_cast<T>(*a OP abele_fields::plain(b));                                                          \
  }
ABELE_ASSIGNMENT(+)
ABELE_ASSIGNMENT(-)
ABELE_ASSIGNMENT(*)
ABELE_ASSIGNMENT(/)
#undef ABELE_ASSIGNMENT

template <class T, VectorLayout L, unsigned A, bool I>
class Input<Vector<T, L, A, I>> : public abele_fields::Elements<abele_fields::stored_t<T>, abele_fields::has_size(L)> {
  static_assert(sizeof(Vector<T, L, A, I>) != 0, "described in full, for those who look at fields");
};
template <class T, VectorLayout L, unsigned A, bool I>
class Output<Vector<T, L, A, I>> : public abele_fields::Elements<abele_fields::stored_t<T>, abele_fields::has_size(L)> {
  static_assert(sizeof(Vector<T, L, A, I>) != 0, "described in full, for those who look at fields");
};
template <class T, VectorLayout L, unsigned A, bool I>
class InOut<Vector<T, L, A, I>> : public abele_fields::Elements<abele_fields::stored_t<T>, abele_fields::has_size(L)> {
  static_assert(sizeof(Vector<T, L, A, I>) != 0, "described in full, for those who look at fields");
};

template <class T, VectorListLayout L, unsigned A, bool I>
class Input<VectorList<T, L, A, I>> : public abele_fields::Elements<Input<Vector<T>>, true> {
  static_assert(sizeof(VectorList<T, L, A, I>) != 0, "described in full, for those who look at fields");
};
template <class T, VectorListLayout L, unsigned A, bool I>
class Output<VectorList<T, L, A, I>> : public abele_fields::Elements<Output<Vector<T>>, true> {
  static_assert(sizeof(VectorList<T, L, A, I>) != 0, "described in full, for those who look at fields");
};
template <class T, VectorListLayout L, unsigned A, bool I>
class InOut<VectorList<T, L, A, I>> : public abele_fields::Elements<InOut<Vector<T>>, true> {
  static_assert(sizeof(VectorList<T, L, A, I>) != 0, "described in full, for those who look at fields");
};

} // namespace poplar
