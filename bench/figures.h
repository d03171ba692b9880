// What the benchmarks measure. Each file contributes the figures of its layer.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace trireme {

/// The unit is at the end of the name. Measured when asked for, as a median of several runs.
struct Figure {
  std::string name;
  std::function<double()> measure;
};

std::vector<Figure> kernel_figures();
std::vector<Figure> collective_figures();
std::vector<Figure> recorder_figures();
std::vector<Figure> host_figures();      ///< on an emulated cluster
std::vector<Figure> training_figures();  ///< where LibTorch is built with

}  // namespace trireme
