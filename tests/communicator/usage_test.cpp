// What a single rank gets wrong: an error at the call that says what, and a communicator that still works.
#include "communicator/cluster.h"
#include "communicator/collectives.h"
#include "support/throws.h"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <limits>
#include <thread>

namespace trireme::test {
namespace {

using ::testing::Test;

class Usage : public ::testing::TestWithParam<Way> {
 protected:
  /// Each rank makes the wrong call, and then a right one with the others.
  template <typename Call>
  void expect_refused(const std::string& expected, Call&& call, int ranks = 3) {
    Cluster cluster(GetParam(), ranks);
    cluster.run([&](Communicator& world) {
      const std::string said = usage_error([&] { call(world); });
      EXPECT_NE(said.find(expected), std::string::npos) << said;
      std::vector<int> one = {world.rank()};
      world.allreduce(one);
      EXPECT_EQ(one[0], ranks * (ranks - 1) / 2);
    });
  }

  std::vector<float> data_ = std::vector<float>(12);
};

TEST_P(Usage, NullBuffers) {
  const Buffer null(nullptr, 5, Dtype::f32);
  const std::string says = "null pointer to 5 elements";
  expect_refused(says, [&](Communicator& world) { world.allreduce(null); });
  expect_refused(says, [&](Communicator& world) { world.broadcast(null, 0); });
  expect_refused(says, [&](Communicator& world) { world.reduce(null, 0); });
  expect_refused(says, [&](Communicator& world) { (void)world.send_async(null, 0); });
  expect_refused(says, [&](Communicator& world) { world.receive(null, 0); });
  expect_refused(says, [&](Communicator& world) { world.allgather(null, data_); });
  expect_refused(says, [&](Communicator& world) { world.scatter(data_, null, 0); });
}

TEST_P(Usage, WrongSizes) {
  std::vector<float> five(5);
  expect_refused("out has 5 elements; it must have 12", [&](Communicator& w) { w.allreduce(data_, five); });
  expect_refused("in has 12 elements; it must have 15", [&](Communicator& w) { w.reduce_scatter(data_, five); });
  expect_refused("out has 12 elements; it must have 15", [&](Communicator& w) { w.allgather(five, data_); });
  expect_refused("multiple of the number of ranks", [&](Communicator& w) {
    std::vector<float> other(5);
    w.all_to_all(five, other);
  });
  const std::vector<std::size_t> counts = {1, 2};
  expect_refused("counts has 2 elements; it must have 3", [&](Communicator& w) { w.allgather(five, data_, counts); });
  const std::vector<std::size_t> uneven = {5, 5, 5};
  expect_refused("out has 12 elements; it must have 15", [&](Communicator& w) { w.allgather(five, data_, uneven); });
  std::vector<std::size_t> to = {4, 4, 4};
  std::vector<float> other(12);
  expect_refused("in has 12 elements; it must have 15",
                 [&](Communicator& w) { w.all_to_all(data_, uneven, other, to); });
  std::vector<double> doubles(12);
  expect_refused("in has elements of f32, out of f64", [&](Communicator& w) { w.allreduce(data_, doubles); });
}

TEST_P(Usage, DtypesAndOps) {
  expect_refused("and is for integers", [&](Communicator& w) { w.allreduce(data_, Op::bit_and); });
  expect_refused("xor is for integers", [&](Communicator& w) { w.reduce(data_, 0, Op::bit_xor); });
  const Buffer strange(data_.data(), 3, static_cast<Dtype>(99));
  expect_refused("dtype", [&](Communicator& w) { w.allreduce(strange); });
  expect_refused("dtype", [&](Communicator& w) { w.broadcast(strange, 0); });
  expect_refused("no such operation", [&](Communicator& w) { w.allreduce(data_, static_cast<Op>(77)); });
}

TEST_P(Usage, Algorithms) {
  const auto by = [&](std::string_view name) {
    return [this, name](Communicator& w) { w.allreduce(data_, Op::sum, {.algorithm = name}); };
  };
  expect_refused("no algorithm is called 'rink'; did you mean 'ring'?", by("rink"));
  expect_refused("dissemination is an algorithm for barrier, not for allreduce", by("dissemination"));
  expect_refused("swing can't run on 3 ranks", by("swing"));
  expect_refused("byteps needs extra ranks", by("byteps"));
  for (const Algorithm& row : algorithms()) {
    if (row.served && row.collective == Collective::allreduce) expect_refused("needs extra ranks", by(row.name));
  }
  const std::vector<std::size_t> shares = {4, 4, 4};
  std::vector<float> other(12);
  expect_refused("only direct can",
                 [&](Communicator& w) { w.all_to_all(data_, shares, other, shares, {.algorithm = "factored"}); });
  const auto next = [](const Communicator& w) { return (w.rank() + 1) % w.ranks(); };
  const std::string says = "a message has no algorithm: leave out 'ring'";
  expect_refused(says, [&](Communicator& w) { w.send(data_, next(w), {.algorithm = "ring"}); });
  expect_refused(says, [&](Communicator& w) { w.receive(data_, next(w), {.algorithm = "ring"}); });
  expect_refused(says, [&](Communicator& w) { (void)w.send_async(data_, next(w), {.algorithm = "ring"}); });
  expect_refused(says, [&](Communicator& w) { (void)w.receive_async(data_, next(w), {.algorithm = "ring"}); });
}

TEST_P(Usage, Ranks) {
  expect_refused("root 3 is not one of 3 ranks", [&](Communicator& w) { w.broadcast(data_, 3); });
  expect_refused("root -1 is not one of 3 ranks", [&](Communicator& w) { w.reduce(data_, -1); });
  expect_refused("is not one of 3 ranks", [&](Communicator& w) { w.send(data_, 17); });
  expect_refused("can't send to itself", [&](Communicator& w) { w.send(data_, w.rank()); });
  expect_refused("can't receive from itself", [&](Communicator& w) { w.receive(data_, w.rank()); });
}

TEST_P(Usage, Overlaps) {
  std::vector<float> room(40);
  const auto part = [&](std::size_t first, std::size_t count) {
    return Buffer(room.data() + first, count, Dtype::f32);
  };
  expect_refused("overlap", [&](Communicator& w) { w.allreduce(part(0, 12), part(1, 12)); });
  expect_refused("overlap", [&](Communicator& w) { w.allgather(part((w.rank() + 1) % 3 * 4, 4), part(0, 12)); });
  expect_refused("overlap", [&](Communicator& w) { w.reduce_scatter(part(0, 12), part((w.rank() + 1) % 3 * 4, 4)); });
  expect_refused("overlap", [&](Communicator& w) { w.all_to_all(part(0, 12), part(11, 12)); });
}

TEST_P(Usage, SharesThatAreTooLarge) {
  Cluster cluster(GetParam(), 2);
  cluster.run([&](Communicator& world) {
    float one = 0;
    const std::size_t many = std::size_t{1} << 29;
    const std::vector<std::size_t> to = {many, many};
    const ConstBuffer in(&one, 2 * many, Dtype::f32);
    const Buffer out(&one, 2 * many, Dtype::f32);
    EXPECT_NE(usage_error([&] { world.all_to_all(in, to, out, to); }).find("too large for an uneven"),
              std::string::npos);
    world.barrier();
  });
}

TEST_P(Usage, SizesThatNoMemoryHas) {
  float one = 0;
  const std::size_t many = std::size_t{1} << 62;
  const Buffer huge(&one, many, Dtype::f32);
  const ConstBuffer nothing(&one, 0, Dtype::f32);
  const Buffer bytes(&one, many, Dtype::u8);
  const ConstBuffer no_bytes(&one, 0, Dtype::u8);
  expect_refused(
      "more than there can be", [&](Communicator& w) { w.reduce_scatter(nothing, huge); }, 4);
  expect_refused(
      "must have", [&](Communicator& w) { w.reduce_scatter(no_bytes, bytes); }, 4);
  expect_refused(
      "must have", [&](Communicator& w) { w.scatter(no_bytes, bytes, w.rank()); }, 4);
  expect_refused(
      "must have",
      [&](Communicator& w) {
        w.all_to_all(no_bytes, std::vector<std::size_t>(4, many), Buffer(&one, 0, Dtype::u8),
                     std::vector<std::size_t>(4, many));
      },
      4);
  expect_refused("no room", [&](Communicator& w) { (void)w.window(std::numeric_limits<std::size_t>::max()); });
  // Sanitizers end a program that asks for so much.
  if (kEffort > 1) expect_refused("no room", [&](Communicator& w) { (void)w.window(std::size_t{1} << 50); });
}

TEST_P(Usage, DeadlinesBeforeTheBeginning) {
  expect_refused("deadline", [&](Communicator& w) { w.barrier({.deadline = std::chrono::milliseconds(-1)}); });
}

// A message that was refused is not waited for: the next one is the first.
TEST_P(Usage, MessagesThatAreRefusedDoNotCount) {
  const CallOptions wrong{.deadline = std::chrono::milliseconds(-1)};
  Cluster cluster(GetParam(), 2, std::chrono::seconds(10));
  cluster.run([&](Communicator& world) {
    std::vector<int> data = {7, 8, 9};
    if (world.rank() == 0) {
      EXPECT_NE(usage_error([&] { world.send(data, 1, wrong); }).find("deadline"), std::string::npos);
      EXPECT_NE(usage_error([&] { (void)world.send_async(data, 1, wrong); }).find("deadline"), std::string::npos);
      world.send(data, 1);
    } else {
      std::vector<int> got(3);
      EXPECT_NE(usage_error([&] { world.receive(got, 0, wrong); }).find("deadline"), std::string::npos);
      world.receive(got, 0);
      EXPECT_EQ(got, data);
    }
  });
}

// `in` and `out` may start at one address where a rank sends or receives nothing.
TEST_P(Usage, UnevenSharesOfNothing) {
  Cluster cluster(GetParam(), 2);
  cluster.run([&](Communicator& world) {
    std::vector<int> data = {7, 8, 9};
    const std::vector<std::size_t> none = {0, 0};
    const std::vector<std::size_t> three =
        world.rank() == 0 ? std::vector<std::size_t>{0, 3} : std::vector<std::size_t>{3, 0};
    const Buffer nothing(data.data(), 0, Dtype::i32);
    if (world.rank() == 0) {
      world.all_to_all(data, three, nothing, none);
    } else {
      std::vector<int> got(3);
      world.all_to_all(Buffer(got.data(), 0, Dtype::i32), none, got, three);
      EXPECT_EQ(got, data);
    }
  });
}

TEST_P(Usage, ForEver) {
  Cluster cluster(GetParam(), 2, std::chrono::milliseconds::max());
  cluster.run([&](Communicator& world) {
    if (world.rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    world.barrier();
    if (world.rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    world.barrier({.deadline = std::chrono::milliseconds::max()});
  });
}

TEST_P(Usage, AfterClose) {
  Cluster cluster(GetParam(), 2);
  cluster.run([&](Communicator& world) {
    Communicator half = world.split(0, 0);
    Window window = half.window(100);
    half.barrier();
    half.close();
    half.close();
    std::vector<float> data(4);
    EXPECT_NE(usage_error([&] { half.allreduce(data); }).find("has been closed"), std::string::npos);
    EXPECT_NE(usage_error([&] { half.send(data, 1 - half.rank()); }).find("has been closed"), std::string::npos);
    EXPECT_NE(usage_error([&] { half.split(0, 0); }).find("has been closed"), std::string::npos);
    EXPECT_NE(usage_error([&] { half.window(1); }).find("has been closed"), std::string::npos);
    world.barrier();
    world.close();
    EXPECT_NE(usage_error([&] { world.barrier(); }).find("has been closed"), std::string::npos);
    window.as<int>()[0] = 3;
  });
}

INSTANTIATE_TEST_SUITE_P(All, Usage, ::testing::Values(Way::inproc, Way::tcp),
                         [](const auto& test) { return to_string(test.param); });

}  // namespace
}  // namespace trireme::test
