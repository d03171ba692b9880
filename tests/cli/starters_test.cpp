// The smallest example under launchers that are not this project's, where they are installed, and under what they set.
#include "rendezvous/server.h"
#include "support/run.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

namespace trireme {
namespace {

using namespace std::chrono_literals;

bool is_installed(const std::string& program) { return run({"/bin/sh", "-c", "command -v " + program}).status == 0; }

int count(const std::string& text, const std::string& word) {
  int found = 0;
  for (auto at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++found;
  return found;
}

// What the example prints, and what init() says of who started it.
void expect_all(const Ran& ran, int ranks, const std::string& starter) {
  EXPECT_EQ(ran.status, 0) << ran.err;
  for (int rank = 0; rank < ranks; ++rank) {
    EXPECT_EQ(count(ran.out, fmt::format("rank {} of {}: the sum of 1000 elements is right", rank, ranks)), 1)
        << ran.out;
  }
  EXPECT_EQ(count(ran.err, fmt::format("started by {} as rank ", starter)), ranks) << ran.err;
}

Ran run_script(const std::string& script) {
  return run({"/bin/sh", "-c", "export TRIREME_LOG=info; exec timeout 60 " + script}, 90s);
}

// The ranks of a job as processes of one shell, each with `variables` in which $i is its number.
Ran run_with(int ranks, const std::string& variables) {
  return run_script(
      fmt::format("sh -c 'for i in $(seq 0 {}); do {} {} & done; wait'", ranks - 1, variables, TRIREME_HELLO));
}

TEST(Starters, OpenMpi) {
  if (!is_installed("mpirun.openmpi")) GTEST_SKIP() << "Open MPI is not installed";
  expect_all(run_script("mpirun.openmpi --allow-run-as-root --oversubscribe -np 4 " TRIREME_HELLO), 4,
             "mpirun of Open MPI");
}

TEST(Starters, Mpich) {
  if (!is_installed("mpirun.mpich")) GTEST_SKIP() << "MPICH is not installed";
  expect_all(run_script("mpirun.mpich -np 4 " TRIREME_HELLO), 4, "mpirun of MPICH");
  // A shell in between, and one program after the other.
  const Ran twice = run_script("mpirun.mpich -np 3 sh -c '" TRIREME_HELLO " && " TRIREME_HELLO "'");
  EXPECT_EQ(twice.status, 0) << twice.err;
  EXPECT_EQ(count(twice.out, "is right"), 6) << twice.out;
}

TEST(Starters, Torchrun) {
  if (!is_installed("torchrun")) GTEST_SKIP() << "torchrun is not installed";
  const TemporaryFolder logs;  // it would leave them behind
  // PyTorch 1.13 with Python 3.11 fails without values for -r and -t. Its agent gets a port of the system's choice.
  expect_all(run_script("torchrun --log_dir " + logs / "." +
                        " -r 1 -t 1 --rdzv_backend c10d --rdzv_endpoint localhost:0 --nproc_per_node 4 "
                        "--no_python " TRIREME_HELLO),
             4, "torchrun");
}

TEST(Starters, AProgramThatNobodyStartedSaysHow) {
  const Ran ran = run_script("env -i " TRIREME_HELLO);
  EXPECT_EQ(ran.status, 1);
  EXPECT_EQ(ran.out, "");
  EXPECT_EQ(count(ran.err, "this process was not started as a rank"), 1) << ran.err;
  EXPECT_EQ(count(ran.err, "trireme run -n 4"), 1) << ran.err;
}

TEST(Starters, ByHand) {
  const int port = rendezvous::Server("127.0.0.1", 0, 1).port();  // free again
  expect_all(run_with(2, fmt::format("RANK=$i WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT={}", port)), 2,
             "RANK and MASTER_ADDR");
}

// Nobody has made a board for the ranks of the host: they share one of theirs. A rank that is stopped ends when the
// others have.
TEST(Starters, ByHandRanksKnowWhatOneThatWasStoppedDidLast) {
  const int port = rendezvous::Server("127.0.0.1", 0, 1).port();  // free again
  const Ran ran =
      run({"/bin/sh", "-c",
           fmt::format("for i in 0 1 2; do RANK=$i WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 MASTER_PORT={} {} --stop 1 "
                       "--after 100ms --deadline 2s & eval p$i=$!; done; wait $p0; wait $p2; kill -9 $p1; wait $p1",
                       port, TRIREME_FAULT)},
          90s);
  EXPECT_EQ(count(ran.err, "for rank 1 ("), 2) << ran.err;
  EXPECT_EQ(count(ran.err, ") ended operation "), 2) << ran.err;
  EXPECT_EQ(count(ran.err, "has not answered"), 0) << ran.err;
}

TEST(Starters, TorchrunsEnvironment) {
  const rendezvous::Server agent("127.0.0.1", 0, 1);  // has MASTER_PORT
  expect_all(run_with(4, fmt::format("RANK=$i WORLD_SIZE=4 LOCAL_RANK=$i LOCAL_WORLD_SIZE=4 MASTER_ADDR=127.0.0.1 "
                                     "MASTER_PORT={} TORCHELASTIC_RUN_ID=none TORCHELASTIC_RESTART_COUNT=0 "
                                     "TORCHELASTIC_USE_AGENT_STORE=True",
                                     agent.port())),
             4, "torchrun");
}

// The secret is in a notice that only this user can read.
TEST(Starters, OfOneHostHaveASecretToEncryptWith) {
  for (const char* const encrypt : {"0", "1"}) {
    const Ran ran = run_with(3, fmt::format("SLURM_PROCID=$i SLURM_STEP_NUM_TASKS=3 SLURM_JOB_ID={} SLURM_STEP_ID=1 "
                                            "SLURM_STEP_NUM_NODES=1 TRIREME_TRANSPORT=tcp TRIREME_ENCRYPT={}",
                                            ::getpid(), encrypt));
    expect_all(ran, 3, "srun of Slurm");
    EXPECT_EQ(count(ran.err, "this job has no secret"), 0) << ran.err;
    EXPECT_EQ(count(ran.err, "what they say is encrypted"), *encrypt == '1' ? 3 : 0) << ran.err;
  }
}

TEST(Starters, SlurmsEnvironment) {
  const std::string step =
      fmt::format("SLURM_PROCID=$i SLURM_STEP_NUM_TASKS=3 SLURM_JOB_ID={} SLURM_STEP_ID=0", ::getpid());
  expect_all(run_with(3, step + " SLURM_STEP_NUM_NODES=1"), 3, "srun of Slurm");
  expect_all(run_with(3, step + " SLURM_STEP_NUM_NODES=2 SLURM_STEP_NODELIST=localhost,other"), 3, "srun of Slurm");
}

TEST(Starters, ThatContradictEachOtherAreNamed) {
  const Ran ran = run_script(
      "env RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=1 OMPI_COMM_WORLD_RANK=1 "
      "OMPI_COMM_WORLD_SIZE=2 " TRIREME_HELLO);
  EXPECT_EQ(ran.status, 1);
  EXPECT_EQ(count(ran.err, "OMPI_COMM_WORLD_RANK"), 1) << ran.err;
  EXPECT_EQ(count(ran.err, "by RANK and WORLD_SIZE"), 1) << ran.err;
}

}  // namespace
}  // namespace trireme
