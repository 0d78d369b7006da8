#pragma once
#include "../kernels/config.hpp"
#include <cmath>
#include <cstddef>
namespace gfx {
struct Vec3f {
  float x, y, z;
  Vec3f() = default;
  constexpr Vec3f(float a, float b, float c) : x(a), y(b), z(c) {}
  explicit Vec3f(const float *p) : x(p[0]), y(p[1]), z(p[2]) {}
  Vec3f operator+(const Vec3f &o) const { return {x + o.x, y + o.y, z + o.z}; }
  Vec3f operator-(const Vec3f &o) const { return {x - o.x, y - o.y, z - o.z}; }
  Vec3f operator*(float s) const { return {x * s, y * s, z * s}; }
  Vec3f cwiseProduct(const Vec3f &o) const { return {x * o.x, y * o.y, z * o.z}; }
  float dot(const Vec3f &o) const { return x * o.x + y * o.y + z * o.z; }
  Vec3f cross(const Vec3f &o) const { return {y * o.z - z * o.y, z * o.x - x * o.z, x * o.y - y * o.x}; }
  Vec3f normalized() const { const float s = 1.f / sqrtf(dot(*this)); return *this * s; }
  float operator[](std::size_t i) const { return (&x)[i]; }
};
struct Ray { Vec3f origin, direction; float tMin = eps, tMax = inf; };
} // namespace gfx
