// Leaky integrate-and-fire neurons with sparse spikes: indices and how many there are.
#include <poplar/Vertex.hpp>
#include <poplar/HalfFloat.hpp>
#ifdef __IPU__
#include <ipu_vector_math>
#endif

template <typename FPType> class SparseLif : public poplar::Vertex {
public:
  poplar::Input<poplar::Vector<FPType>> weights; // [neuron][input]
  poplar::InOut<poplar::Vector<FPType>> state;
  poplar::Input<poplar::Vector<unsigned>> spike_ids;
  poplar::Input<unsigned> num_spikes;
  poplar::Output<poplar::Vector<unsigned>> out_ids;
  poplar::Output<unsigned> out_num;
  FPType decay, threshold;
  unsigned num_inputs;

  bool compute() {
    unsigned fired = 0;
    for (unsigned n = 0; n < state.size(); ++n) {
      FPType input = 0;
      for (unsigned s = 0; s < num_spikes; ++s)
        input += weights[n * num_inputs + spike_ids[s]];
      state[n] = decay * state[n] + (FPType(1) - decay) * input;
      if (state[n] > threshold) {
        state[n] -= threshold;
        if (fired < out_ids.size())
          out_ids[fired] = n;
        ++fired;
      }
    }
    *out_num = fired;
    return true;
  }
};

template class SparseLif<float>;
template class SparseLif<half>;
