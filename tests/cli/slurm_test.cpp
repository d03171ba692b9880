// Slurm itself: a controller and two nodes on hosts that are network namespaces, and srun that starts ranks there. Where
// those can't be had, or Slurm is not installed, these tests are skipped.
#include "cli/netlab.h"
#include "support/launched.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace trireme {
namespace {

constexpr const char* kConfiguration = R"(
ClusterName=test
SlurmctldHost=control(10.77.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
StateSaveLocation={0}/state
SlurmdSpoolDir={0}/%n
SlurmctldPidFile={0}/control.pid
SlurmdPidFile={0}/%n.pid
NodeName=node1 NodeAddr=10.77.0.2 CPUs=4
NodeName=node2 NodeAddr=10.77.0.3 CPUs=4
PartitionName=all Nodes=ALL Default=YES
)";

// Each host has a name of its own, and knows the others by theirs.
class Slurm : public test::NetlabTest {
 protected:
  void SetUp() override {
    if (run({"/bin/sh", "-c", "command -v slurmctld && command -v slurmd && command -v srun"}).status != 0) {
      GTEST_SKIP() << "there is no Slurm: tools/setup test";
    }
    NetlabTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    const std::string folder = std::filesystem::path(folder_ / "x").parent_path();
    for (const char* const name : {"state", "node1", "node2"}) std::filesystem::create_directory(folder_ / name);
    folder_.write("slurm.conf", fmt::format(fmt::runtime(kConfiguration), folder));
    folder_.write("cgroup.conf", "CgroupPlugin=cgroup/v1\n");  // which needs none as long as nothing is limited
    folder_.write("hosts", "127.0.0.1 localhost\n10.77.0.1 control\n10.77.0.2 node1\n10.77.0.3 node2\n");
    daemons_.push_back(std::make_unique<Started>(on("0", "control", {"slurmctld", "-D"})));
    daemons_.push_back(std::make_unique<Started>(on("1", "node1", {"slurmd", "-D"})));
    daemons_.push_back(std::make_unique<Started>(on("2", "node2", {"slurmd", "-D"})));
    ASSERT_TRUE(comes_true([&] {
      return run(on("0", "control", {"sinfo", "-h", "-o", "%D %T"})).out == "2 idle\n";
    })) << daemons_[0]->err()
        << daemons_[1]->err();
  }
  void TearDown() override {
    NetlabTest::TearDown();  // ends them in the orderly way
    daemons_.clear();
  }

  std::vector<std::string> on(const std::string& host, const std::string& host_name,
                              std::vector<std::string> command) const {
    command.insert(command.begin(), {"/bin/sh", "-c",
                                     R"(exec unshare -m -u sh -c 'mount --bind "$0/hosts" /etc/hosts && hostname "$1" &&
                                        shift && SLURM_CONF="$0/slurm.conf" exec "$@"' "$0" "$@")",
                                     folder_ / ".", host_name, TRIREME_NETLAB, "run", "--name", name(), host});
    return command;
  }

  Ran on_control(std::vector<std::string> command) const {
    command.insert(command.begin(), {"timeout", "60", "env", "TRIREME_LOG=info"});
    return run(on("0", "control", std::move(command)));
  }

  static void expect_hello(const Ran& ran, int ranks) {
    EXPECT_EQ(ran.status, 0) << ran.err;
    EXPECT_EQ(lines_with(ran.out, fmt::format("of {}: the sum of 1000 elements is right", ranks)).size(),
              static_cast<std::size_t>(ranks))
        << ran.out << ran.err;
  }

  TemporaryFolder folder_;
  std::vector<std::unique_ptr<Started>> daemons_;
};

TEST_F(Slurm, SrunStartsRanksOnSeveralNodesAndOnOne) {
  for (const char* const nodes : {"2", "1"}) {
    const Ran ran = on_control({"srun", "-N", nodes, "-n", "4", TRIREME_HELLO});
    expect_hello(ran, 4);
    EXPECT_EQ(lines_with(ran.err, "started by srun of Slurm as rank ").size(), 4U) << ran.err;
  }
}

// Several steps of a job at the same time do not find each other, nor does one that was cut out of the job.
TEST_F(Slurm, StepsOfOneJobDoNotMeet) {
  const std::string step = fmt::format("srun --overlap -N 1 -n 2 {}", TRIREME_HELLO);
  const Ran ran = on_control({"salloc", "-N", "2", "-n", "8", "/bin/sh", "-c",
                              fmt::format("{0} & {0} & srun --overlap -N 2 -n 3 {1} & wait", step, TRIREME_HELLO)});
  EXPECT_EQ(lines_with(ran.out, "of 2: the sum").size(), 4U) << ran.out << ran.err;
  EXPECT_EQ(lines_with(ran.out, "of 3: the sum").size(), 3U) << ran.out << ran.err;
}

TEST_F(Slurm, ARankThatIsKilledOnAnotherNodeIsNamed) {
  const Ran ran = on_control({"srun", "-N", "2", "-n", "4", TRIREME_FAULT, "--kill", "3", "--after", "300ms"});
  EXPECT_NE(ran.status, 0) << ran.err;
  EXPECT_EQ(lines_with(ran.err, "rank 3 (node2, pid ").size(), 3U) << ran.err;
}

TEST_F(Slurm, SrunReachesHostsForTheLauncher) {
  expect_hello(
      on_control({TRIREME_PROGRAM, "run", "--agent", "srun -u -n 1 -w", "--hosts", "node1:2,node2:1", TRIREME_HELLO}),
      3);
}

}  // namespace
}  // namespace trireme
