// How a batch norm that a user's class holds becomes synchronous: the class's member is a pointer to BatchNorm1dImpl,
// and calls its forward, which is not virtual. No other object can take its place. But that forward ends in the
// operator aten::batch_norm, and hands it the running variance; so the very tensor is marked, and the operator looks
// for the mark. The mark is what LibTorch lets a tensor carry for autograd: it goes with the tensor, survives to(),
// load and set_data, which keep the tensor and change its values, and is not copied with it.
// The operator is replaced for CPU tensors in programs that link this file; what is not marked goes on to LibTorch's
// own.
#include "torch/give_up.h"
#include "torch/sync_norm.h"
#include "trireme/torch/sync_batch_norm.h"

#include <fmt/core.h>

#include <ATen/ops/batch_norm_native.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/library.h>
#include <torch/nn/functional/instancenorm.h>
#include <torch/nn/modules/instancenorm.h>
#include <unordered_set>

namespace trireme {
namespace detail {
namespace {

struct Mark : torch::autograd::AutogradMeta {
  Mark(std::shared_ptr<SyncNorm> shared, std::weak_ptr<torch::nn::Module> owner)
      : norm(std::move(shared)), module(std::move(owner)) {}

  std::shared_ptr<SyncNorm> norm;
  std::weak_ptr<torch::nn::Module> module;
};

const Mark* mark_of(const torch::Tensor& tensor) {
  return tensor.defined() ? dynamic_cast<const Mark*>(tensor.unsafeGetTensorImpl()->autograd_meta()) : nullptr;
}

using OptionalTensor = c10::optional<torch::Tensor>;

torch::Tensor batch_norm(const torch::Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
                         const OptionalTensor& running_mean, const OptionalTensor& running_var, bool training,
                         double momentum, double eps, bool cudnn_enabled) {
  const auto value = [](const OptionalTensor& tensor) { return tensor ? *tensor : torch::Tensor(); };
  const Mark* mark = mark_of(value(running_var));
  const auto proceed = [&](const OptionalTensor& variance) {
    return at::native::batch_norm(input, weight, bias, running_mean, variance, training, momentum, eps, cudnn_enabled);
  };
  if (mark == nullptr || !training) return proceed(running_var);
  Running running;
  if (value(running_mean).defined()) {
    running = {*running_mean, *running_var, momentum};  // LibTorch's forward has counted the batch
  } else {
    // Without running statistics LibTorch takes the batch's in eval mode too; ranks need not evaluate alike.
    const auto module = mark->module.lock();
    if (!module || !module->is_training()) return proceed({});
  }
  return mark->norm->forward(input, value(weight), value(bias), running, eps);
}

// Calls `act` with the module as what it is. False: it is no batch norm of LibTorch.
template <typename Act>
bool as_batch_norm(torch::nn::Module& module, Act&& act) {
  const auto attempt = [&]<typename Norm>(Norm* norm) {
    if (norm != nullptr) act(*norm);
    return norm != nullptr;
  };
  return attempt(dynamic_cast<torch::nn::BatchNorm1dImpl*>(&module)) ||
         attempt(dynamic_cast<torch::nn::BatchNorm2dImpl*>(&module)) ||
         attempt(dynamic_cast<torch::nn::BatchNorm3dImpl*>(&module));
}

// Each module once, with its name.
template <typename Act>
void visit(torch::nn::Module& root, Act&& act) {
  std::unordered_set<const torch::nn::Module*> seen;
  root.apply([&](const std::string& name, torch::nn::Module& module) {
    if (seen.insert(&module).second) act(name, module);
  });
}

bool keeps_statistics(const torch::nn::Module& module) {
  const auto buffers = module.named_buffers(/*recurse=*/false);
  return buffers.contains("running_mean") && buffers.contains("running_var");
}

// Each sample has statistics of its own: nothing is shared.
bool is_instance_norm(torch::nn::Module& module) {
  return dynamic_cast<torch::nn::InstanceNorm1dImpl*>(&module) != nullptr ||
         dynamic_cast<torch::nn::InstanceNorm2dImpl*>(&module) != nullptr ||
         dynamic_cast<torch::nn::InstanceNorm3dImpl*>(&module) != nullptr;
}

std::string title(const std::string& name, const torch::nn::Module& module) {
  return name.empty() ? module.name() : fmt::format("{} '{}'", module.name(), name);
}

[[noreturn]] void refuse(const std::string& name, const torch::nn::Module& module, const std::string& why) {
  throw UsageError(fmt::format("convert_sync_batch_norm: {} {}", title(name, module), why));
}

// Whether there is something to convert. Throws if it can't be.
bool can_be_converted(const std::string& name, torch::nn::Module& module) {
  bool plain = false;
  const bool known = as_batch_norm(module, [&](auto& norm) {
    if (mark_of(norm.running_var) != nullptr) return;
    for (const auto& tensors : {norm.parameters(/*recurse=*/false), norm.buffers(/*recurse=*/false)}) {
      for (const torch::Tensor& tensor : tensors) {
        if (!tensor.defined() || tensor.device().is_cpu()) continue;
        refuse(name, module, "is on " + tensor.device().str() + ": only the CPU is supported yet");
      }
    }
    if (!norm.options.track_running_stats() && module.weak_from_this().expired()) {
      refuse(name, module,
             "has no running statistics and is not in a holder: make it a torch::nn::BatchNorm1d, 2d or 3d");
    }
    plain = true;
  });
  if (!known && dynamic_cast<SyncBatchNormImpl*>(&module) == nullptr && !is_instance_norm(module) &&
      keeps_statistics(module)) {
    refuse(name, module,
           "keeps running statistics, but is no torch::nn::BatchNorm1d, 2d or 3d: use trireme::SyncBatchNorm in it");
  }
  return plain;
}

template <typename Norm>
void convert(Norm& norm, const Communicator& apart, const SyncNorm::Names& names, std::size_t number) {
  // Without running statistics there is no tensor to mark: one that is in no list of buffers takes the mark instead.
  if (!norm.running_var.defined()) norm.running_var = torch::empty({0});
  norm.running_var.unsafeGetTensorImpl()->set_autograd_meta(std::make_unique<Mark>(
      std::make_shared<SyncNorm>(apart, norm.options.num_features(), /*correction=*/0, names, number),
      norm.weak_from_this()));
}

}  // namespace

std::vector<SyncedLayer> synced_layers(torch::nn::Module& root) {
  std::vector<SyncedLayer> layers;
  visit(root, [&](const std::string& name, torch::nn::Module& module) {
    if (auto* sync = dynamic_cast<SyncBatchNormImpl*>(&module)) {
      layers.push_back({name, sync->shared(), [sync] { return next_batch(*sync); }});
    }
    as_batch_norm(module, [&](auto& norm) {
      const Mark* mark = mark_of(norm.running_var);
      if (mark != nullptr) layers.push_back({name, mark->norm, [&norm] { return next_batch(norm); }});
    });
  });
  return layers;
}

// Not the whole of autograd's keys: above them LibTorch's own handling, such as autocast's, still comes first.
TORCH_LIBRARY_IMPL(aten, AutogradCPU, library) { library.impl("batch_norm", &batch_norm); }
// What inference mode calls, where there is no autograd.
TORCH_LIBRARY_IMPL(aten, CPU, library) { library.impl("batch_norm", &batch_norm); }

}  // namespace detail

std::size_t convert_sync_batch_norm(torch::nn::Module& module, Communicator world) {
  std::vector<std::pair<std::string, torch::nn::Module*>> found;
  try {
    detail::visit(module, [&](const std::string& name, torch::nn::Module& each) {
      if (detail::can_be_converted(name, each)) found.emplace_back(name, &each);
    });
  } catch (const UsageError& error) {
    detail::give_up(world, error.what());
  }
  // Even for none: ranks whose modules differ should not wait for each other here.
  const Communicator apart = world.split(0, world.rank());
  auto names = std::make_shared<std::vector<std::string>>();
  for (const auto& [name, each] : found) names->push_back(detail::title(name, *each));
  for (std::size_t i = 0; i < found.size(); ++i) {
    detail::as_batch_norm(*found[i].second, [&](auto& norm) { detail::convert(norm, apart, names, i); });
  }
  return found.size();
}

}  // namespace trireme
