// An emulated cluster of three hosts for each test (tools/netlab).
#pragma once

#include "support/run.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <unistd.h>

namespace trireme::test {

class NetlabTest : public testing::Test {
 protected:
  void SetUp() override {
    const Ran up = run({TRIREME_NETLAB, "up", "--name", name(), "3", "1gbit"});
    if (up.status == 3) GTEST_SKIP() << up.err;
    ASSERT_EQ(up.status, 0) << up.err;
  }
  void TearDown() override { run({TRIREME_NETLAB, "down", "--name", name()}); }

  static std::string name() { return fmt::format("test{}", ::getpid()); }
};

}  // namespace trireme::test
