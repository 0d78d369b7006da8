// Pricing of a European call by paths of given normals; payoff and its variance.
#include <poplar/Vertex.hpp>
#include <algorithm>
#include <cmath>

struct Market {
  float spot, strike, rate, volatility, years;
};

class CallPayoff : public poplar::Vertex {
public:
  poplar::Input<poplar::Vector<float>> normals; // [path][step]
  poplar::Input<poplar::Vector<float, poplar::VectorLayout::ONE_PTR>> market;
  poplar::Output<poplar::Vector<float, poplar::VectorLayout::ONE_PTR>> sums;
  int steps;

  bool compute() {
    const Market &m = *reinterpret_cast<const Market *>(&market[0]);
    const float dt = m.years / steps;
    const float drift = (m.rate - 0.5 * m.volatility * m.volatility) * dt;
    const float diffusion = m.volatility * std::sqrt(dt);
    float sum = 0, squares = 0;
    const int paths = normals.size() / steps;
    for (int p = 0; p < paths; ++p) {
      float log_s = std::log(m.spot);
      for (int k = 0; k < steps; ++k)
        log_s += drift + diffusion * normals[p * steps + k];
      const float payoff = std::max(std::exp(log_s) - m.strike, 0.0f);
      sum += payoff;
      squares += payoff * payoff;
    }
    sums[0] = sum * std::exp(-m.rate * m.years) / paths;
    sums[1] = squares / paths;
    return true;
  }
};
