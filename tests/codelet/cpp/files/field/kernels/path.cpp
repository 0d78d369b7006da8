// Copyright
#include <poplar/Vertex.hpp>
#include <print.h>
#include <optional>
#include <array>
#include <algorithm>
#include "../math/vec.hpp"
#include "../math/../kernels/config.hpp"
#ifdef __IPU__
#include <ipu_vector_math>
#include <ipu_memory_intrinsics>
#include <ipu_builtins.h>
#endif
using namespace poplar;
using gfx::Vec3f; using gfx::Ray;
float PiX2 = 6.28318530717958f;
float rouletteDepth = 3.f;
enum class Material : unsigned char { diffuse, mirror, glass };
struct Sphere { Vec3f centre; float r2; Material m;
  std::optional<float> intersect(const Ray &ray) const {
    const Vec3f o = ray.origin - centre; const float b = o.dot(ray.direction), c = o.dot(o) - r2; const float d = b * b - c;
    if (d < 0) return std::nullopt; const float s = sqrtf(d); const float t = -b - s > ray.tMin ? -b - s : -b + s;
    if (t > ray.tMin && t < ray.tMax) return t; return {}; } };
static const Sphere scene[] = {{{0.f, 0.f, -3.f}, 1.f, Material::diffuse}, {{2.f, 0.f, -4.f}, 1.f, Material::mirror}, {{0.f, -1001.f, 0.f}, 1e6f, Material::glass}};
struct Rng { unsigned s; float operator()() { s ^= s << 13; s ^= s >> 17; s ^= s << 5; return float(s >> 8) * (1.f / 16777216.f); } };
struct TraceRays : public MultiVertex {
  Input<Vector<half>> rays; InOut<Vector<float, VectorLayout::ONE_PTR>> rgb; Input<unsigned> seed; unsigned short maxDepth;
  static Vec3f hemisphere(Rng &rng) { const float z = rng(), phi = PiX2 * rng(); const float r = std::sqrt(std::max(0.f, 1.f - z * z)); return {r * std::cos(phi), r * std::sin(phi), z}; }
  bool compute(unsigned workerId) {
    const unsigned n = rays.size() / 2;
    Rng rng{*seed * 7919u + workerId * 104729u + 1u};
    for (unsigned i = workerId; i < n; i += numWorkers()) {
      Ray ray{{0.f, 0.f, 0.f}, Vec3f(float(rays[2 * i]), float(rays[2 * i + 1]), -1.f).normalized()};
      Vec3f through{1.f, 1.f, 1.f}, light{0.f, 0.f, 0.f};
      unsigned depth = 0;
      while (true) {
        std::optional<float> best; const Sphere *hit = nullptr;
        for (const auto &s : scene) { auto t = s.intersect(ray); if (t && (!best || *t < *best)) { best = t; hit = &s; } }
        if (!hit) { light = light + through * 0.8f; break; }
        if (++depth >= maxDepth) break;
        const Vec3f p = ray.origin + ray.direction * best.value(); const Vec3f nrm = (p - hit->centre).normalized();
        if (float(depth) > rouletteDepth) { const float q = 0.5f; if (rng() < q) break; through = through * (1.f / (1.f - q)); }
        switch (hit->m) {
        case Material::diffuse: { Vec3f d = hemisphere(rng); if (d.dot(nrm) < 0.f) d = d * -1.f; ray = Ray{p, d}; through = through * 0.7f; break; }
        case Material::mirror: ray = Ray{p, ray.direction - nrm * (2.f * ray.direction.dot(nrm))}; break;
        case Material::glass: ray = Ray{p, hemisphere(rng)}; through = through.cwiseProduct({0.9f, 0.5f, 0.5f}); break;
        default: printf("bad material\n"); exit(1);
        }
      }
      rgb[3 * i] += light.x; rgb[3 * i + 1] += light.y; rgb[3 * i + 2] += light.z;
    }
    return true;
  }
};
