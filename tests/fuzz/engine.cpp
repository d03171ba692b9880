// Whatever messages a rank sends, the others' calls end: with the right result, or with an error. They write nowhere but
// where they should, and keep no more than what came.
//
// The first two bytes say what rank 0 does. Each message of rank 1 begins with what is wrong with it, and its length.
#include "communicator/state.h"
#include "require.h"
#include "transport/host.h"
#include "transport/inproc.h"
#include "trireme/error.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <span>
#include <vector>

namespace trireme {
namespace {

using transport::Envelope;
using transport::Incoming;
using transport::Outgoing;
using transport::Piece;
using transport::Sending;

// Bytes, one after the other; zeros, where there are no more.
class Bytes {
 public:
  explicit Bytes(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}

  bool empty() const { return bytes_.empty(); }

  template <typename Number>
  Number next() {
    Number number{};
    const std::size_t count = std::min(sizeof number, bytes_.size());
    std::memcpy(&number, bytes_.data(), count);
    bytes_ = bytes_.subspan(count);
    return number;
  }

 private:
  std::span<const std::uint8_t> bytes_;
};

// Rank 1: it hears what rank 0 says, and forgets it but for the envelope.
class Liar final : public transport::Inbox {
 public:
  explicit Liar(const transport::Inproc& inproc) : host_(2, inproc.memory(1), *this) {}

  // With what rank 0 itself would have in it, but for what the bits say.
  void send(Bytes& bytes) {
    const auto wrong = bytes.next<std::uint8_t>();
    const std::size_t length = bytes.next<std::uint16_t>();
    host_.progress();
    Lie& lie = *lies_.emplace_back(std::make_unique<Lie>());
    Envelope& envelope = lie.outgoing.envelope;
    envelope = heard_;
    envelope.segment = bytes.next<std::uint8_t>();
    envelope.index = bytes.next<std::uint8_t>();
    if ((wrong & 1) != 0) envelope.context = bytes.next<std::uint32_t>();
    if ((wrong & 2) != 0) envelope.sequence = bytes.next<std::uint32_t>();
    if ((wrong & 4) != 0) envelope.segment = bytes.next<std::uint32_t>();
    if ((wrong & 8) != 0) envelope.index = bytes.next<std::uint32_t>();
    if ((wrong & 16) != 0) {
      for (std::uint64_t& word : envelope.call) word = bytes.next<std::uint64_t>();
    }
    if ((wrong & 32) != 0) envelope.context = 0;  // the engine's own
    lie.outgoing.sending = (wrong & 64) == 0 ? Sending::copied : (wrong & 128) == 0 ? Sending::lent : Sending::offered;
    std::byte* data = nullptr;
    if (lie.outgoing.sending != Sending::copied && length > 0) data = host_.memory().arena().take(length);
    if (data == nullptr) {
      lie.own.resize(length);
      data = lie.own.data();
    }
    for (std::size_t i = 0; i < length; ++i) data[i] = bytes.next<std::byte>();
    lie.piece = {data, length};
    lie.outgoing.peer = 0;
    lie.outgoing.pieces = {&lie.piece, 1};
    if (!gone_) host_.post(lie.outgoing);
  }

  void go() {
    host_.progress();
    host_.close();
  }

  std::size_t place(int, const Envelope&, std::size_t, std::span<Piece>) override { return 0; }
  void arrived(int, const Envelope& envelope, const Incoming& incoming) override {
    if (envelope.context != 0) heard_ = envelope;
    Incoming(incoming).release();
  }
  void sent(Outgoing&, bool) override {}
  void lost(int, const std::string&) override { gone_ = true; }
  void closed(int) override { gone_ = true; }

 private:
  struct Lie {
    Outgoing outgoing{};
    Piece piece{};
    std::vector<std::byte> own;
  };

  std::deque<std::unique_ptr<Lie>> lies_;  // outlive the transport
  Envelope heard_{.context = 1};
  bool gone_ = false;
  transport::Host host_;
};

Communicator rank_zero(const transport::Inproc& inproc) {
  auto world = std::make_shared<World>();
  world->patience = std::chrono::seconds(5);
  world->tuning = Tuning::guess();
  world->engine = std::make_unique<Engine>(EngineParts{
      .rank = 0, .ranks = 2, .names = {"rank 0", "rank 1"}, .crowded = true, .board = std::make_shared<Board>(2)});
  world->engine->use(std::make_unique<transport::Host>(2, inproc.memory(0), *world->engine), nullptr);
  return Communicator(
      std::make_shared<Communicator::State>(world, 1, 0, std::vector<int>{0, 1}, std::vector<int>{0, 0}));
}

Handle call(Communicator& world, std::uint8_t which, std::vector<float>& in, std::vector<float>& out) {
  switch (which % 8) {
    case 0: return world.allreduce_async(in);
    case 1: return world.allreduce_async(in, out);
    case 2: return world.broadcast_async(in, 1);
    case 3: return world.reduce_async(in, out, 0);
    case 4: return world.allgather_async(std::span(in).first(in.size() / 2), out);
    case 5: return world.reduce_scatter_async(in, std::span(out).first(out.size() / 2));
    case 6: return world.all_to_all_async(in, out);
    default: return world.receive_async(in, 1);
  }
}

void run(Bytes bytes) {
  const transport::Inproc inproc(2);
  Liar liar(inproc);
  Communicator world = rank_zero(inproc);
  const auto which = bytes.next<std::uint8_t>();
  std::vector<float> in(std::size_t{2} * bytes.next<std::uint8_t>() + 2, 1.0F);
  std::vector<float> out(in.size());
  try {
    Handle handle = call(world, which, in, out);
    while (!bytes.empty()) liar.send(bytes);
    liar.go();
    handle.wait();
  } catch (const Error& error) {
    require(*error.what() != '\0');
  }
  bool ended = false;
  try {
    world.barrier();
  } catch (const Error&) {
    ended = true;
  }
  require(ended);  // Rank 1 has gone, and never was in it.
}

}  // namespace
}  // namespace trireme

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  trireme::run(trireme::Bytes({data, size}));
  return 0;
}
