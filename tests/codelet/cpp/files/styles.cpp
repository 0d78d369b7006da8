// Ways of writing C++ that programs from elsewhere have, each of which something here once did not take.
#include <poplar/Vertex.hpp>

#include <bitset>
#include <complex>
#include <cstring>
#include <functional>
#include <iterator>
#include <optional>

#include <ipu_builtins.h>
#include <ipu_vector_math>

using namespace poplar;

namespace detail { // is the program's, not the headers'
template <class... Ts> auto sum(Ts... ts) { return (ts + ...); }
} // namespace detail

// Lattice field theory: products of 3x3 matrices.
typedef std::complex<float> cplx;
template <int N> struct Matrix {
  cplx m[N][N];
  Matrix operator*(const Matrix &o) const {
    Matrix r{};
    for (int i = 0; i < N; ++i)
      for (int j = 0; j < N; ++j)
        for (int k = 0; k < N; ++k)
          r.m[i][j] += m[i][k] * o.m[k][j];
    return r;
  }
  Matrix dagger() const {
    Matrix r;
    for (int i = 0; i < N; ++i)
      for (int j = 0; j < N; ++j)
        r.m[i][j] = std::conj(m[j][i]);
    return r;
  }
};

class Plaquette : public Vertex {
public:
  Input<Vector<float>> links;
  Output<float> action;

  bool compute() {
    const auto *u = reinterpret_cast<const Matrix<3> *>(&links[0]);
    const auto p = u[0] * u[1] * u[2].dagger() * u[3].dagger();
    *action = 1.0 - (p.m[0][0] + p.m[1][1] + p.m[2][2]).real() / 3.0;
    return true;
  }
};

// Genome alignment.
enum class Move : uint8_t { Stop, Diagonal, Up, Left };
class SmithWaterman : public MultiVertex {
  static constexpr unsigned LONGEST = 64;

public:
  Input<Vector<unsigned char>> a, b;
  Input<Vector<int8_t>> scores;
  Input<Vector<uint64_t>> offsets;
  Output<Vector<int>> best;
  Output<Vector<int64_t>> place;

  static std::pair<int, Move> step(int diagonal, int up, int left) {
    const int most = std::max({0, diagonal, up, left});
    if (most == 0)
      return {0, Move::Stop};
    return most == diagonal ? std::make_pair(most, Move::Diagonal) : std::make_pair(most, most == up ? Move::Up : Move::Left);
  }

  bool compute(unsigned worker) {
    if (worker != getWorkerIndex() || worker != 0)
      return true;
    int row[LONGEST + 1], top = 0, turns = 0;
    std::memset(row, 0, sizeof(row));
    for (size_t i = 0; i < a.size(); ++i) {
      int diagonal = 0;
      for (size_t j = 1; j <= std::min<size_t>(b.size(), LONGEST); ++j) {
        const auto [score, move] = step(diagonal + scores[(a[i] & 3) * 4 + (b[j - 1] & 3)], row[j] - 2, row[j - 1] - 2);
        diagonal = row[j];
        row[j] = score;
        top = std::max(top, score);
        switch (move) {
        case Move::Stop:
          break;
        case Move::Diagonal:
          [[fallthrough]];
        default:
          ++turns;
        }
      }
    }
    best[0] = top;
    best[1] = turns;
    place[0] = static_cast<int64_t>(offsets[0]) * 3;
    return true;
  }
};

// The standard library, as far as it needs no heap.
class Standard : public Vertex {
public:
  InOut<Vector<float>> x;
  Output<Vector<int>> n;
  Vector<unsigned> index;

  bool compute() {
    std::iota(index.begin(), index.end(), 0u);
    n[0] = std::accumulate(index.begin(), index.end(), 0);
    n[1] = std::distance(x.begin(), std::lower_bound(x.begin(), x.end(), 0.5f));
    n[2] = std::bitset<32>(n[0]).count();
    std::optional<float> found;
    if (x.size() > 3)
      found = x[3];
    x[0] = found.value_or(std::numeric_limits<float>::infinity());
    std::swap(x[0], x[1]);
    std::reverse(x.begin(), x.end());
    x[2] = std::get<1>(std::make_tuple(1, 2.0f));
    n[3] = std::count_if(x.begin(), x.end(), [](auto v) { return v > 0.3f; });
    n[4] = std::max_element(x.begin(), x.end()) - x.begin();
    std::transform(x.begin(), x.end(), x.begin(), std::negate<float>());
    std::rotate(x.begin(), x.begin() + 1, x.end());
    n[5] = std::clamp(n[0], 0, 9) + std::gcd(12, 18);
    return true;
  }
};

class Sorted : public Vertex {
public:
  InOut<Vector<float>> x;
  Vector<unsigned short> index;

  bool compute() {
    for (unsigned i = 0; i < index.size(); ++i)
      index[i] = i;
    std::sort(index.begin(), index.end(), [this](unsigned a, unsigned b) { return x[a] > x[b]; });
    std::sort(&x[0], &x[0] + x.size());
    return true;
  }
};

// Eight-bit floats: bits, and metadata that say what they mean.
class FromQuarter : public Vertex {
public:
  Input<Vector<quarter, VectorLayout::SPAN, 8>> in;
  Input<unsigned char> metadata;
  Output<Vector<half, VectorLayout::SPAN, 8>> out;
  InOut<Vector<quarter>> again;

  bool compute() {
    const QuarterMetadata meaning(*metadata);
    for (unsigned i = 0; i < in.size(); ++i) {
      out[i] = toHalf(in[i], meaning);
      again[i] = toQuarter(out[i], meaning);
    }
    return true;
  }
};

// Bits of floats, and functions that write through pointers.
union Bits {
  float f;
  unsigned u;
};
class Punning : public Vertex {
public:
  InOut<Vector<float>> x;
  Output<int> steps;
  unsigned seed;

  static unsigned next(unsigned &s) {
    s ^= s << 13;
    s ^= s >> 17;
    return s ^= s << 5;
  }

  bool compute() {
    Bits a;
    a.f = x[0];
    a.u ^= 0x80000000u;
    x[0] = a.f;
    int bits;
    std::memcpy(&bits, &x[1], sizeof(bits));
    bits += 1;
    std::memcpy(&x[1], &bits, sizeof(bits));
    x[2] = next(seed) * 2.3283064365386963e-10;
    uint32_t *words = (uint32_t *)&x[0];
    words[3] = __builtin_bswap32(words[3]);
    int exponent;
    x[4] = frexpf(x[4], &exponent);
    int n = 0;
    for (int i = 0; i < exponent; ++i)
      n += i;
    *steps = n;
    float whole;
    x[5] = modff(x[5], &whole) + 10 * whole;
    return true;
  }
};

// Classes that others derive from.
template <class Derived> class Each : public Vertex {
public:
  Input<Vector<float>> in;
  Output<Vector<float>> out;
  bool compute() {
    for (unsigned i = 0; i < in.size(); ++i)
      out[i] = static_cast<Derived *>(this)->f(in[i]);
    return true;
  }
};
class Cube : public Each<Cube> {
public:
  float k;
  float f(float x) { return x * x * x * k; }
};
class Abstract : public Vertex {
public:
  Input<int> a;
  virtual bool compute() = 0;
};
class Concrete : public Abstract {
public:
  Output<int> out;
  bool compute() override {
    *out = *a + 1;
    return true;
  }
};
struct Trailing : Vertex {
  Input<float> a;
  Output<float> out;
  const int b;
  auto compute() -> bool {
    out = detail::sum(a, 1.5f, b);
    return true;
  }
};

// Single elements, of halves too, on either side.
class Assigned : public Vertex {
public:
  InOut<float> a;
  InOut<half> h;
  Input<half> g;
  Input<int> n;
  InOut<int> m;

  bool compute() {
    a += 1;
    a -= *n;
    h *= 2;
    h += g;
    *h /= g;
    m += 3;
    a = a * 2 + h;
    float f = a;
    f += a;
    f += g;
    half low = std::min<half>(h, 100.f);
    low++;
    low += g;
    *h = low > g ? low : half(1.5);
    *a = f;
    return true;
  }
};

// Rows by every name.
class Rows : public Vertex {
public:
  Vector<InOut<Vector<float>>> io;
  Vector<Output<float>> ends;
  Input<VectorList<float, VectorListLayout::DELTANELEMENTS, 8>> list;

  bool compute() {
    for (unsigned i = 0; i < io.size(); ++i) {
      auto &row = io[i];
      for (auto it = row.begin(); it != row.end(); ++it)
        *it += 1;
      row.data()[0] = row.front() + row.back() + list[i].size();
      *ends[i] = row->size();
    }
    float *first = &io[0][0];
    for (unsigned r = 0; r < list->size(); ++r)
      for (auto v : list[r])
        *first += v;
    return true;
  }
};

// Masks and normal numbers of the machine's generator.
class Draws : public MultiVertex {
public:
  Output<Vector<float, VectorLayout::SPAN, 8>> normal;
  InOut<Vector<half, VectorLayout::SPAN, 8>> kept;

  bool compute(unsigned worker) {
    float2 *to = reinterpret_cast<float2 *>(&normal[0]);
    for (unsigned i = worker; i < normal.size() / 2; i += CTXT_WORKERS)
      to[i] = __builtin_ipu_f32v2grand();
    half4 *masked = reinterpret_cast<half4 *>(&kept[0]);
    for (unsigned i = worker; i < kept.size() / 4; i += CTXT_WORKERS)
      masked[i] = __builtin_ipu_f16v4rmask(masked[i], 0.25f);
    return true;
  }
};
