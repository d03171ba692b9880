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
#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <deque>
#include <list>
#include <memory>
#include <span>
#include <utility>
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

// A message of rank 1: as rank 0 itself would send it, but for what the first byte says.
struct Lie {
  Lie(Bytes& bytes, const Envelope& heard) : envelope(heard) {
    const auto wrong = bytes.next<std::uint8_t>();
    length = bytes.next<std::uint32_t>() % (1U << 19);
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
    sending = (wrong & 64) == 0 ? Sending::copied : (wrong & 128) == 0 ? Sending::lent : Sending::offered;
  }

  Envelope envelope;
  std::size_t length = 0;
  Sending sending = Sending::copied;
};

void fill(std::span<std::byte> memory, Bytes& bytes) {
  for (std::byte& byte : memory) {
    if (bytes.empty()) break;
    byte = bytes.next<std::byte>();
  }
}

// Rank 1 on the same host: it hears what rank 0 says, and forgets it but for the envelope.
class Neighbour final : public transport::Inbox {
 public:
  explicit Neighbour(const transport::Inproc& inproc) : host_(2, inproc.memory(1), *this) {}

  void send(Bytes& bytes) {
    host_.progress();
    const Lie lie(bytes, heard_);
    Sent& sent = *sent_.emplace_back(std::make_unique<Sent>());
    std::byte* data = nullptr;
    if (lie.sending != Sending::copied && lie.length > 0) data = host_.memory().arena().take(lie.length);
    if (data == nullptr) {
      sent.own.resize(lie.length);
      data = sent.own.data();
    }
    fill({data, lie.length}, bytes);
    sent.piece = {data, lie.length};
    sent.outgoing.peer = 0;
    sent.outgoing.sending = lie.sending;
    sent.outgoing.envelope = lie.envelope;
    sent.outgoing.pieces = {&sent.piece, 1};
    if (!gone_) host_.post(sent.outgoing);
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
  struct Sent {
    Outgoing outgoing{};
    Piece piece{};
    std::vector<std::byte> own;
  };

  std::deque<std::unique_ptr<Sent>> sent_;  // outlives the transport
  Envelope heard_{.context = 1};
  bool gone_ = false;
  transport::Host host_;
};

// Rank 1 on another host, as TCP would bring what it sends: into its place, if it has one. It sends a message whenever
// rank 0 makes progress, and closes when it has said all.
class Stranger final : public transport::Network {
 public:
  Stranger(Bytes bytes, transport::Inbox& inbox) : bytes_(bytes), inbox_(inbox) {}

  void post(Outgoing& outgoing) override {
    if (outgoing.envelope.context != 0) heard_ = outgoing.envelope;
    sent_.push_back(&outgoing);
  }

  bool progress() override {
    for (Outgoing* outgoing : std::exchange(sent_, {})) inbox_.sent(*outgoing, false);
    if (closed_) return false;
    if (bytes_.empty()) {
      closed_ = true;
      inbox_.closed(1);
    } else {
      bring(Lie(bytes_, heard_));
    }
    return true;
  }

  bool wait(std::chrono::milliseconds) override { return progress(); }
  void watch(int) override {}
  int descriptor() const override { return -1; }
  int door() const override { return 0; }  // any that there is: nobody comes
  transport::Greeted greet() override { return {.open = false}; }
  bool has_guests() const override { return false; }
  void close() override { close_within({}); }
  void close_within(std::chrono::milliseconds) override {
    closed_ = true;
    sent_.clear();
  }
  bool is_connected(int) const override { return true; }
  void check_links() override {}
  void cut() override { close(); }

 protected:
  void release(Incoming& incoming) override {
    require(std::erase_if(kept_, [&](const auto& one) { return one.data() == incoming.data; }) == 1);
  }
  void answer(Incoming&) override {}

 private:
  void bring(const Lie& lie) {
    std::array<Piece, 64> pieces{};
    const std::size_t places = inbox_.place(1, lie.envelope, lie.length, pieces);
    Incoming incoming{.bytes = lie.length};
    if (places > 0) {
      std::size_t all = 0;
      for (const Piece& piece : std::span(pieces).first(places)) {
        fill({piece.data, piece.bytes}, bytes_);
        std::memset(piece.data + piece.bytes - 1, 1, 1);  // all of it is written
        all += piece.bytes;
      }
      require(all == lie.length);
      incoming.placed = true;
    } else {
      auto& own = kept_.emplace_back(lie.length + 1);  // even of nothing there is a place
      fill(std::span(own).first(lie.length), bytes_);
      incoming.data = own.data();
      incoming.transport = this;
    }
    inbox_.arrived(1, lie.envelope, incoming);
  }

  Bytes bytes_;
  transport::Inbox& inbox_;
  Envelope heard_{.context = 1};
  std::vector<Outgoing*> sent_;
  std::list<std::vector<std::byte>> kept_;
  bool closed_ = false;
};

std::shared_ptr<World> world_of_two() {
  auto world = std::make_shared<World>();
  world->patience = std::chrono::seconds(5);
  world->tuning = Tuning::guess();
  world->engine = std::make_unique<Engine>(EngineParts{
      .rank = 0, .ranks = 2, .names = {"rank 0", "rank 1"}, .crowded = true, .board = std::make_shared<Board>(2)});
  return world;
}

Communicator rank_zero(const std::shared_ptr<World>& world, int host_of_other) {
  return Communicator(
      std::make_shared<Communicator::State>(world, 1, 0, std::vector<int>{0, 1}, std::vector<int>{0, host_of_other}));
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

// Rank 1 goes at last. What it says before may be what a barrier waits for, and it has only so much to say.
void finish(Communicator& world) {
  constexpr int kMost = 10'000;
  bool ended = false;
  for (int barriers = 0; barriers < kMost && !ended; ++barriers) {
    try {
      world.barrier();
    } catch (const Error& error) {
      ended = *error.what() != '\0';
    }
  }
  require(ended);
}

template <typename Act>
void try_to(Act&& act) {
  try {
    act();
  } catch (const Error& error) {
    require(*error.what() != '\0');
  }
}

void run(Bytes bytes) {
  const auto which = bytes.next<std::uint8_t>();
  const bool large = (which & 8) != 0;  // more than a segment
  const std::size_t pairs = bytes.next<std::uint8_t>() + 1;
  std::vector<float> in(2 * pairs * (large ? 600 : 1), 1.0F);
  std::vector<float> out(in.size());
  if ((which & 16) == 0) {
    const transport::Inproc inproc(2);
    Neighbour neighbour(inproc);
    const auto shared = world_of_two();
    shared->engine->use(std::make_unique<transport::Host>(2, inproc.memory(0), *shared->engine), nullptr);
    Communicator world = rank_zero(shared, 0);
    try_to([&] {
      Handle handle = call(world, which, in, out);
      while (!bytes.empty()) neighbour.send(bytes);
      neighbour.go();
      handle.wait();
    });
    finish(world);
  } else {
    const auto shared = world_of_two();
    shared->engine->use(nullptr, std::make_unique<Stranger>(bytes, *shared->engine));
    Communicator world = rank_zero(shared, 1);
    try_to([&] { call(world, which, in, out).wait(); });
    finish(world);
  }
}

}  // namespace
}  // namespace trireme

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  trireme::run(trireme::Bytes({data, size}));
  return 0;
}
