// Rays against spheres with a little vector class, in the style of weekend ray tracers.
#include <poplar/Vertex.hpp>
#include <cmath>
#include <limits>

template <class T> class Vec3 {
public:
  T x, y, z;
  Vec3(T a = 0, T b = 0, T c = 0) : x(a), y(b), z(c) {}
  Vec3 operator+(const Vec3 &o) const { return Vec3(x + o.x, y + o.y, z + o.z); }
  Vec3 operator-(const Vec3 &o) const { return Vec3(x - o.x, y - o.y, z - o.z); }
  Vec3 operator*(T s) const { return Vec3(x * s, y * s, z * s); }
  T dot(const Vec3 &o) const { return x * o.x + y * o.y + z * o.z; }
  Vec3 normalized() const { return *this * (T(1) / std::sqrt(dot(*this))); }
};
using Vec = Vec3<float>;

struct Sphere {
  Vec centre;
  float radius;
  bool intersect(const Vec &origin, const Vec &direction, float &t) const {
    const Vec oc = origin - centre;
    const float b = oc.dot(direction), c = oc.dot(oc) - radius * radius;
    const float discriminant = b * b - c;
    if (discriminant < 0)
      return false;
    t = -b - std::sqrt(discriminant);
    return t > 1e-4f;
  }
};

class TraceRays : public poplar::Vertex {
public:
  poplar::Input<poplar::Vector<float>> spheres; // centre, radius
  poplar::Input<poplar::Vector<float>> directions;
  poplar::Output<poplar::Vector<float>> shade;
  poplar::Output<poplar::Vector<int, poplar::VectorLayout::ONE_PTR>> hit;

  bool compute() {
    const auto num = spheres.size() / 4;
    const Vec light = Vec(1, 1, -1).normalized();
    for (unsigned r = 0; r < shade.size(); ++r) {
      const Vec d = Vec(directions[3 * r], directions[3 * r + 1], directions[3 * r + 2]).normalized();
      float nearest = std::numeric_limits<float>::max();
      int found = -1;
      Vec normal;
      for (unsigned s = 0; s < num; ++s) {
        const float *p = &spheres[4 * s];
        const Sphere sphere{Vec(p[0], p[1], p[2]), p[3]};
        float t;
        if (sphere.intersect(Vec(), d, t) && t < nearest) {
          nearest = t;
          found = s;
          normal = (d * t - sphere.centre).normalized();
        }
      }
      hit[r] = found;
      shade[r] = found < 0 ? 0.f : std::fmax(0.f, normal.dot(light));
    }
    return true;
  }
};
