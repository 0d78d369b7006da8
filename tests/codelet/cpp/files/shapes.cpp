// Programs of more than one loop: nested, early ends, local memory, tables, branches on state and on data.
#include <poplar/Vertex.hpp>
#include <cmath>
using namespace poplar;
namespace {
constexpr float table[4] = {0.25f, 0.5f, 0.75f, 1.0f};
template<int N> struct Pow { template<class T> static T f(T x) { return x * Pow<N-1>::f(x); } };
template<> struct Pow<0> { template<class T> static T f(T) { return T(1); } };
struct Complex { float re, im; Complex operator*(const Complex &o) const { return {re*o.re - im*o.im, re*o.im + im*o.re}; } Complex operator+(const Complex &o) const { return {re+o.re, im+o.im}; } float norm() const { return re*re+im*im; } };
}
class Mandel : public Vertex { public:
  Input<Vector<float>> re, im; Output<Vector<int>> n; const int limit;
  bool compute() { for (unsigned i=0;i<re.size();++i) { Complex c{re[i],im[i]}, z{0,0}; int k=0; do { z = z*z + c; } while (z.norm() < 4.0f && ++k < limit); n[i]=k; } return true; } };
class Lookup : public Vertex { public:
  Input<Vector<unsigned char>> idx; Output<Vector<float>> out;
  bool compute() { for (unsigned i=0;i<idx.size();++i) out[i] = table[idx[i] & 3] + Pow<3>::f(float(idx[i])); return true; } };
class Local : public Vertex { public:
  Input<Vector<float>> x; Output<Vector<float>> y; const unsigned taps;
  bool compute() { float buf[16]; for (unsigned t=0;t<taps;++t) buf[t]=table[t&3]; for (unsigned i=0;i<y.size();++i) { float s=0; for (unsigned t=0;t<taps;++t) s+=buf[t]*x[i+t]; y[i]=s; } return true; } };
class Early : public Vertex { public:
  Input<Vector<int>> x; Output<int> at; 
  bool compute() { for (int i=0;i<(int)x.size();++i) if (x[i] < 0) { *at = i; return false; } *at = -1; return true; } };
class Sel : public Vertex { public:
  Input<Vector<float>> a; InOut<Vector<float>> b; Input<Vector<unsigned>> order; unsigned mode;
  bool compute() { if (mode == 0) { for (unsigned i=0;i<a.size();++i) b[order[i]] = a[i]; } else if (mode == 1) for (unsigned i=0;i<a.size();++i) b[i] += a[order[i]]; else for (unsigned i=0;i<a.size();++i) b[i] = std::fmax(a[i], b[i]); return true; } };
class Nested : public Vertex { public:
  Input<Vector<float>> A, B; Output<Vector<float>> C; const unsigned short m,n,k;
  bool compute() { for (unsigned i=0;i<m;++i) for (unsigned j=0;j<n;++j) { float s=0; for (unsigned l=0;l<k;++l) s += A[i*k+l]*B[l*n+j]; C[i*n+j]=s; } return true; } };
class Tri : public Vertex { public:
  InOut<Vector<float>> L; const unsigned n;
  bool compute() { for (unsigned j=0;j<n;++j) { float d = L[j*n+j]; for (unsigned k=0;k<j;++k) d -= L[j*n+k]*L[j*n+k]; d = std::sqrt(d); L[j*n+j]=d; for (unsigned i=j+1;i<n;++i) { float s=L[i*n+j]; for (unsigned k=0;k<j;++k) s -= L[i*n+k]*L[j*n+k]; L[i*n+j]=s/d; } } return true; } };
