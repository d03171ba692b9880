// What a checkpoint is made of, as bytes. check_...() throws UsageError that says what is different, and changes
// nothing; load_...() is called after it.
#pragma once

#include "trireme/torch/sampler.h"

#include <string>
#include <string_view>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>
#include <vector>

namespace trireme::detail {

/// Tensors, and which of them have a gradient: loading gives those zeros, and takes it from others.
std::string save_model(const torch::nn::Module& model);
void check_model(std::string_view bytes, const torch::nn::Module& model);
void load_model(std::string_view bytes, torch::nn::Module& model);

std::string save_optimizer(const torch::optim::Optimizer& optimizer);
void check_optimizer(std::string_view bytes, const torch::optim::Optimizer& optimizer);
void load_optimizer(std::string_view bytes, torch::optim::Optimizer& optimizer);

std::string save_sampler(const DistributedSampler& sampler);
void check_sampler(std::string_view bytes, const DistributedSampler& sampler);
void load_sampler(std::string_view bytes, DistributedSampler& sampler);

/// Of the CPU's default generator: all that dropout and torch::rand() take from.
std::string random_state();
void set_random_state(std::string_view state);

/// Strings as one.
std::string join_strings(const std::vector<std::string>& strings);
std::vector<std::string> split_strings(std::string_view bytes);

}  // namespace trireme::detail
