// Who a process is, from variables given as a table.
#include "rendezvous/environment.h"

#include "support/throws.h"

#include <gtest/gtest.h>

#include <map>

namespace trireme::rendezvous {
namespace {

using Variables = std::map<std::string, std::string>;

Place place_from(const Variables& variables) {
  return place_from_environment([&](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  });
}

const Variables kByHand{{"RANK", "2"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "node-1"}, {"MASTER_PORT", "29500"}};
const Variables kByRun{{"RANK", "0"}, {"WORLD_SIZE", "4"}, {"TRIREME_RENDEZVOUS", "127.0.0.1:4711"}};

Variables with(Variables variables, const std::string& name, const std::string& value) {
  variables[name] = value;
  return variables;
}

Variables without(Variables variables, const std::string& name) {
  variables.erase(name);
  return variables;
}

TEST(Environment, OfTriremeRun) {
  const Place place = place_from(with(with(kByRun, "MASTER_ADDR", "elsewhere"), "MASTER_PORT", "1"));
  EXPECT_EQ(place.rank, 0);
  EXPECT_EQ(place.ranks, 4);
  EXPECT_EQ(place.host, "127.0.0.1");
  EXPECT_EQ(place.port, 4711);
  EXPECT_FALSE(place.serve);
  EXPECT_EQ(place.started_by, "trireme run");
  const Place six = place_from(with(kByRun, "TRIREME_RENDEZVOUS", "[fe80::1%eth0]:80"));
  EXPECT_EQ(six.host, "fe80::1%eth0");
  EXPECT_EQ(six.port, 80);
}

TEST(Environment, OfFourVariables) {
  const Place place = place_from(kByHand);
  EXPECT_EQ(place.rank, 2);
  EXPECT_EQ(place.ranks, 4);
  EXPECT_EQ(place.host, "node-1");
  EXPECT_EQ(place.port, 29500);
  EXPECT_FALSE(place.serve);
  const Place first = place_from(with(kByHand, "RANK", "0"));
  EXPECT_TRUE(first.serve);
  EXPECT_NE(first.started_by, "");
}

const Variables kByTorchrun{{"RANK", "1"},
                            {"WORLD_SIZE", "4"},
                            {"LOCAL_WORLD_SIZE", "4"},
                            {"MASTER_ADDR", "127.0.0.1"},
                            {"MASTER_PORT", "29500"},
                            {"TORCHELASTIC_RUN_ID", "none"},
                            {"TORCHELASTIC_RESTART_COUNT", "0"},
                            {"TORCHELASTIC_USE_AGENT_STORE", "True"}};
const Variables kByOpenMpi{{"OMPI_COMM_WORLD_RANK", "3"},
                           {"OMPI_COMM_WORLD_SIZE", "4"},
                           {"OMPI_COMM_WORLD_LOCAL_RANK", "3"},
                           {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                           {"PMIX_NAMESPACE", "1601699841"}};
const Variables kByMpich{{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"MPI_LOCALNRANKS", "2"}};
const Variables kBySlurm{{"SLURM_PROCID", "5"},
                         {"SLURM_NTASKS", "8"},
                         {"SLURM_JOB_ID", "4711"},
                         {"SLURM_STEP_ID", "2"},
                         {"SLURM_STEP_NUM_NODES", "2"},
                         {"SLURM_STEP_NUM_TASKS", "6"},
                         {"SLURM_STEP_NODELIST", "n[08-09]"}};

bool contains(const std::string& text, const std::string& word) { return text.find(word) != std::string::npos; }

TEST(Environment, OfTorchrunWhoseAgentHasThePort) {
  const Place place = place_from(kByTorchrun);
  EXPECT_EQ(place.started_by, "torchrun");
  EXPECT_EQ(place.rank, 1);
  EXPECT_FALSE(place.serve);
  EXPECT_TRUE(contains(place.notice, "torchrun-29500-none-0")) << place.notice;
  EXPECT_EQ(place.port, 0);
  EXPECT_TRUE(place_from(with(kByTorchrun, "RANK", "0")).serve);
  // A restart is another meeting.
  EXPECT_NE(place_from(with(kByTorchrun, "TORCHELASTIC_RESTART_COUNT", "1")).notice, place.notice);
  // On several hosts all can count to the next port.
  const Place far = place_from(with(with(kByTorchrun, "LOCAL_WORLD_SIZE", "2"), "MASTER_ADDR", "node-1"));
  EXPECT_EQ(far.host, "node-1");
  EXPECT_EQ(far.port, 29501);
  EXPECT_EQ(far.notice, "");
  // Without a store of its own the port is free.
  EXPECT_EQ(place_from(with(kByTorchrun, "TORCHELASTIC_USE_AGENT_STORE", "False")).port, 29500);
  // Slurm often starts one torchrun a host.
  Variables both = kByTorchrun;
  both.insert(kBySlurm.begin(), kBySlurm.end());
  EXPECT_EQ(place_from(both).started_by, "torchrun");
}

TEST(Environment, OfMpirun) {
  const Place open_mpi = place_from(kByOpenMpi);
  EXPECT_EQ(open_mpi.started_by, "mpirun of Open MPI");
  EXPECT_EQ(open_mpi.rank, 3);
  EXPECT_EQ(open_mpi.ranks, 4);
  EXPECT_FALSE(open_mpi.serve);
  EXPECT_TRUE(contains(open_mpi.notice, "openmpi-1601699841")) << open_mpi.notice;
  const Place mpich = place_from(kByMpich);
  EXPECT_EQ(mpich.started_by, "mpirun of MPICH");
  EXPECT_EQ(mpich.ranks, 2);
  EXPECT_TRUE(mpich.serve);
  EXPECT_TRUE(contains(mpich.notice, "mpich-")) << mpich.notice;
  EXPECT_EQ(place_from(kByMpich).notice, mpich.notice);
  // A place that the user names is taken.
  const Place named = place_from(with(with(kByOpenMpi, "MASTER_ADDR", "node-1"), "MASTER_PORT", "29500"));
  EXPECT_EQ(named.host, "node-1");
  EXPECT_EQ(named.port, 29500);
  EXPECT_EQ(named.notice, "");
  // Open MPI starts what it needs on other hosts with Slurm, where it is there.
  Variables both = kByOpenMpi;
  both.insert(kBySlurm.begin(), kBySlurm.end());
  EXPECT_EQ(place_from(both).started_by, "mpirun of Open MPI");
}

TEST(Environment, OfSrun) {
  const Place place = place_from(kBySlurm);
  EXPECT_EQ(place.started_by, "srun of Slurm");
  EXPECT_EQ(place.rank, 5);
  EXPECT_EQ(place.ranks, 6);
  EXPECT_EQ(place.host, "n08");
  EXPECT_GE(place.port, 15'000);
  EXPECT_LT(place.port, 30'000);
  EXPECT_NE(place_from(with(kBySlurm, "SLURM_STEP_ID", "3")).port, place.port);
  EXPECT_EQ(place_from(without(kBySlurm, "SLURM_STEP_NUM_TASKS")).ranks, 8);
  const auto host_of = [](const std::string& list) {
    return place_from(with(kBySlurm, "SLURM_STEP_NODELIST", list)).host;
  };
  EXPECT_EQ(host_of("alpha,beta"), "alpha");
  EXPECT_EQ(host_of("gpu[7,9-12],other"), "gpu7");
  EXPECT_EQ(host_of("rack[2-3]node[11-12]"), "rack2node11");
  EXPECT_EQ(host_of("one"), "one");
  const Place near = place_from(with(kBySlurm, "SLURM_STEP_NUM_NODES", "1"));
  EXPECT_TRUE(contains(near.notice, "slurm-4711-2")) << near.notice;
}

TEST(Environment, SaysWhetherAnythingStartedTheProcess) {
  const auto started = [](const Variables& variables) {
    return started_as_rank([&](const char* name) -> std::optional<std::string> {
      const auto found = variables.find(name);
      if (found == variables.end()) return std::nullopt;
      return found->second;
    });
  };
  for (const Variables& variables : {kByHand, kByRun, kByTorchrun, kByOpenMpi, kByMpich, kBySlurm}) {
    EXPECT_TRUE(started(variables));
  }
  EXPECT_FALSE(started({}));
  EXPECT_FALSE(started({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}}));  // as a batch script has them
}

Variables both(const Variables& one, const Variables& other) {
  Variables all = one;
  all.insert(other.begin(), other.end());
  return all;
}

struct Bad {
  const char* about;
  Variables variables;
  std::vector<std::string> words;
};

TEST(Environment, ThatIsWrongIsNamedAndExplained) {
  const std::vector<Bad> cases{
      {"nothing", {}, {"trireme run -n 4 ./program", "RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT"}},
      {"no rank", without(kByHand, "RANK"), {"WORLD_SIZE is set, but RANK is not", "trireme run"}},
      {"no size", without(kByHand, "WORLD_SIZE"), {"RANK is set, but WORLD_SIZE is not"}},
      {"no host", without(kByHand, "MASTER_ADDR"), {"RANK is set, but MASTER_ADDR is not"}},
      {"no port", without(kByHand, "MASTER_PORT"), {"RANK is set, but MASTER_PORT is not"}},
      {"port alone", {{"MASTER_PORT", "1"}}, {"MASTER_PORT is set, but WORLD_SIZE is not"}},
      {"rendezvous alone", {{"TRIREME_RENDEZVOUS", "a:1"}}, {"TRIREME_RENDEZVOUS is set, but WORLD_SIZE is not"}},
      {"words", with(kByHand, "RANK", "two"), {"RANK is 'two'", "from 0 to 3"}},
      {"half a number", with(kByHand, "RANK", "2x"), {"RANK is '2x'"}},
      {"empty", with(kByHand, "RANK", ""), {"RANK is ''"}},
      {"space", with(kByHand, "RANK", " 2"), {"RANK is ' 2'"}},
      {"negative", with(kByHand, "RANK", "-1"), {"RANK is '-1'"}},
      {"rank too large", with(kByHand, "RANK", "4"), {"RANK is '4'", "WORLD_SIZE 4", "from 0 to 3"}},
      {"beyond int", with(kByHand, "RANK", "99999999999"), {"RANK is '99999999999'"}},
      {"one rank", with(with(kByHand, "WORLD_SIZE", "1"), "RANK", "1"), {"has to be 0"}},
      {"no ranks", with(kByHand, "WORLD_SIZE", "0"), {"WORLD_SIZE is '0'", "1 or more"}},
      {"fewer", with(kByHand, "WORLD_SIZE", "-4"), {"WORLD_SIZE is '-4'"}},
      {"beyond reason", with(kByHand, "WORLD_SIZE", "2000000000"), {"WORLD_SIZE is '2000000000'"}},
      {"empty host", with(kByHand, "MASTER_ADDR", ""), {"MASTER_ADDR is empty"}},
      {"port 0", with(kByHand, "MASTER_PORT", "0"), {"MASTER_PORT is '0'", "1 to 65535"}},
      {"port too large", with(kByHand, "MASTER_PORT", "65536"), {"MASTER_PORT is '65536'"}},
      {"rendezvous without port", with(kByRun, "TRIREME_RENDEZVOUS", "host"), {"TRIREME_RENDEZVOUS is 'host'", "PORT"}},
      {"rendezvous without host", with(kByRun, "TRIREME_RENDEZVOUS", ":1"), {"TRIREME_RENDEZVOUS is ':1'"}},
      {"rendezvous port", with(kByRun, "TRIREME_RENDEZVOUS", "h:70000"), {"TRIREME_RENDEZVOUS is 'h:70000'"}},
      {"rendezvous port 0", with(kByRun, "TRIREME_RENDEZVOUS", "h:0"), {"TRIREME_RENDEZVOUS is 'h:0'"}},
      {"bare IPv6", with(kByRun, "TRIREME_RENDEZVOUS", "::1:5"), {"[IPv6]:PORT"}},
      {"rendezvous and bad rank", with(kByRun, "RANK", "7"), {"RANK is '7'"}},
      {"two launchers",
       both(kByHand, kByOpenMpi),
       {"rank 2 of 4 by RANK and WORLD_SIZE", "rank 3 of 4 by OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE"}},
      {"run in mpirun", both(kByRun, with(kByMpich, "PMI_RANK", "1")), {"PMI_RANK", "WORLD_SIZE", "unset"}},
      {"mpirun's rank", with(kByOpenMpi, "OMPI_COMM_WORLD_RANK", "4"), {"OMPI_COMM_WORLD_RANK is '4'", "from 0 to 3"}},
      {"srun's rank", with(kBySlurm, "SLURM_PROCID", "6"), {"SLURM_PROCID is '6'", "SLURM_STEP_NUM_TASKS 6"}},
      {"mpirun without size", without(kByOpenMpi, "OMPI_COMM_WORLD_SIZE"), {"OMPI_COMM_WORLD_SIZE is not"}},
      {"several hosts",
       with(kByOpenMpi, "OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
       {"-x MASTER_ADDR=HOST -x MASTER_PORT=29500"}},
      {"several with MPICH", with(kByMpich, "MPI_LOCALNRANKS", "1"), {"-genv MASTER_ADDR HOST"}},
      {"half a place", with(kByOpenMpi, "MASTER_ADDR", "a"), {"MASTER_ADDR is set, but MASTER_PORT is not"}},
      {"no hosts", without(kBySlurm, "SLURM_STEP_NODELIST"), {"SLURM_STEP_NODELIST"}},
      {"torchrun's last port",
       with(with(kByTorchrun, "LOCAL_WORLD_SIZE", "1"), "MASTER_PORT", "65535"),
       {"MASTER_PORT is 65535"}},
  };
  for (const Bad& bad : cases) {
    SCOPED_TRACE(bad.about);
    const std::string message = test::usage_error([&] { place_from(bad.variables); });
    for (const std::string& word : bad.words) EXPECT_NE(message.find(word), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace trireme::rendezvous
