// Odd but valid C++ around vertex classes: what of it are codelets, what their fields are, and how they are called.
#include <cstddef>
#include <poplar/HalfFloat.hpp>
#include <poplar/Vertex.hpp>
using namespace poplar;

namespace outer::inner {
enum class Mode : unsigned char { Off, On = 255 };
enum Sign : short { Minus = -3, Plus };
struct Stage {
  struct Nested : Vertex {
    Output<float> y;
    bool compute() { *y = 1; return true; }
  };
  template <class T> struct Each : Vertex {
    Output<T> y;
    bool compute() { *y = 2; return true; }
  };
};
inline namespace v2 {
struct Inlined : Vertex {
  Output<float> y;
  bool compute() { *y = 3; return true; }
};
} // namespace v2
} // namespace outer::inner
template struct outer::inner::Stage::Each<half>;
namespace {
template <class T> struct Unnamed : Vertex {
  Output<T> y;
  bool compute() { *y = 4; return true; }
};
template struct Unnamed<int>;
} // namespace

// Two templates of one name, with template arguments that hold what divides them
namespace one { template <class T> struct Same : Vertex { Output<T> y; bool compute() { *y = 5; return true; } }; }
namespace two { template <bool B, int N, char C> struct Same : Vertex { Output<int> y; bool compute() { *y = N; return B; } }; }
template struct one::Same<float>;
template struct two::Same<(3 > 2), (1 << 4), '<'>;
template struct two::Same<(3 < 2), -1, '"'>;
template struct two::Same<false, 7, ','>;

// Arguments that are functions, variables, types of functions and members, packs
static float square(float x) { return x * x; }
extern const float table[2];
const float table[2] = {1, 2};
template <float (*F)(float), const float *P> struct Applied : Vertex {
  Output<float> y;
  bool compute() { *y = F(P ? P[1] : 3.0f); return true; }
};
template struct Applied<&square, table>;
template struct Applied<square, nullptr>;
struct Tag;
template <class... T> struct Listed : Vertex { Output<unsigned> y; bool compute() { *y = sizeof...(T); return true; } };
template struct Listed<void, int(float), int Tag::*, Tag &, std::nullptr_t>;
template struct Listed<>;
template <template <class...> class L, class T = half, outer::inner::Mode M = outer::inner::Mode::On>
struct Defaulted : Vertex { Output<T> y; bool compute() { *y = 1; return true; } };
template struct Defaulted<Listed>;

// Fields: aliases, enumerations, default values, several bases
using Floats = Input<Vector<float, VectorLayout::SPAN, 8>>;
template <class T> using Out = Output<Vector<T>>;
struct Counted { static unsigned how_many; static constexpr int LIMIT = 3; using Own = unsigned short; Own n = 7; };
struct Scaled { float s = 0.5f; };
struct Fields : Counted, Vertex, Scaled {
  Floats x;
  Out<half> y;
  outer::inner::Mode mode = outer::inner::Mode::On;
  const outer::inner::Sign sign;
  Input<Vector<outer::inner::Mode>> modes;
  const volatile float factor = 2;
  Vector<Input<Vector<int>>> rows;
  bool compute() { y[0] = x[0] * s; return true; }
};

// Names
struct Größe : Vertex {
  Input<float> länge;
  Output<float> maß_2;
  bool compute() { *maß_2 = *länge; return true; }
};
struct $3D_x7 : Vertex { Output<float> $y, y2z; bool compute() { *$y = *y2z = 1; return true; } };
template <class T> struct Inherited : Vertex { Output<T> longlong; bool compute() { *longlong = sizeof(T); return true; } };
template <class T> struct longlongs : Inherited<T> {};
template struct longlongs<long long>;
struct OfBase : Inherited<long long> {};

// Macros
#define SUM(NAME, TYPE) \
  class NAME : public Vertex { public: Input<Vector<TYPE>> in; Output<TYPE> out; bool compute() { *out = in[0]; return true; } };
SUM(SumF, float) SUM(SumI, int)
#define INSTANTIATE(...) template struct Inherited<__VA_ARGS__>;
INSTANTIATE(short)

// compute in other forms, beside other functions of that name
struct Trailing : Vertex { Output<float> y; auto compute() -> bool { *y = 1; return true; } };
struct Outside : Vertex { Output<float> y; bool compute(); };
bool Outside::compute() { *y = 2; return true; }
struct Overloaded : MultiVertex {
  Output<int> y;
  bool compute() { *y = -1; return false; }
  template <class T> bool compute(T *) { return false; }
  bool compute(unsigned worker) { if (worker == 0) *y = 9; return true; }
};

// No codelets: declared alone, not instantiated, local, no vertex
struct Later;
template <class T> struct NotAsked : Vertex { Output<T> y; bool compute() { return true; } };
inline bool local() { struct Local : Vertex { Output<float> y; bool compute() { return true; } }; return Local().compute(); }
struct Plain { float y; bool compute() { return true; } };
const char *text = "struct Quoted : Vertex { bool compute() { return true; } };"; /* struct Commented : Vertex {}; */

// Refused, each for itself
struct WithStruct : Vertex { Output<float> y; struct { float a, b; }; bool compute() { *y = a; return true; } };
struct WithUnion : Vertex { Output<float> y; union { float a; int b; }; bool compute() { *y = a; return true; } };
struct WithArray : Vertex { Output<float> y; float a[3]; bool compute() { *y = a[0]; return true; } };
struct WithBits : Vertex { Output<float> y; unsigned low : 3; bool compute() { *y = low; return true; } };
struct WithClass : Vertex { Output<float> y; Scaled inside; bool compute() { *y = inside.s; return true; } };
struct Virtually : virtual Scaled, Vertex { Output<float> y; bool compute() { *y = s; return true; } };
struct NoCompute : Vertex { Output<float> y; };
