// --numa-binding: who may run where, on machines of many shapes; and reading such a machine from a fabricated
// /sys.
#include "launcher/process/binding.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <tuple>

#include "launcher/process/topology.hpp"

namespace cpprun::launcher {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

CpuSet cpus(const std::string& list) {
  return parse_cpu_list(list).value();
}

TEST(CpuList, ReadAndWritten) {
  for (const char* text : {"", "0", "0-3", "0-1,4,6-7", "1024-1030"}) EXPECT_EQ(to_text(cpus(text)), text);
  EXPECT_EQ(to_text(cpus("3,1-2,1\n")), "1-3");
  for (const char* text : {"x", "1-", "-1", "3-1", "1-2-3", "1,,2", "0-99999999"})
    EXPECT_EQ(parse_cpu_list(text), std::nullopt) << text;
}

TEST(NumaBinding, Names) {
  EXPECT_EQ(parse_numa_binding("core-complex"), NumaBinding::CoreComplex);
  EXPECT_EQ(parse_numa_binding("Node"), std::nullopt);
}

// Two sockets of two nodes of four cores of two threads: CPU n and n + 16 are one core; node k has cores 4k
// to 4k + 3; two cores share a cache.
Topology big() {
  Topology topology;
  for (int cpu = 0; cpu < 32; ++cpu) {
    const int core = cpu % 16;
    const int pair = core / 2 * 2;
    topology.nodes[core / 4].insert(cpu);
    topology.package[cpu] = core / 8;
    topology.siblings[cpu] = {core, core + 16};
    topology.cache[cpu] = {pair, pair + 1, pair + 16, pair + 17};
  }
  return topology;
}

struct Case {
  const char* what;
  const char* mode;
  Topology topology;
  const char* allowed;
  std::vector<int> device_nodes;
  int workers;
  std::vector<std::string> expected;
};

TEST(NumaBinding, Decides) {
  const Topology flat{{{0, cpus("0-1")}}, {}, {}, {}};
  Topology uneven = big();  // one cache of node 0 is larger than the other
  for (const int cpu : {1, 2, 3, 17, 18, 19}) uneven.cache[cpu] = cpus("1-3,17-19");
  uneven.cache[0] = uneven.cache[16] = cpus("0,16");
  for (const Case& c : {
           Case{"GPU's node", "node", big(), "0-31", {3, 0}, 2, {"12-15,28-31", "0-3,16-19"}},
           Case{"unknown node is 0", "node", big(), "0-31", {-1}, 1, {"0-3,16-19"}},
           Case{"fewer GPUs than workers",
                "node",
                big(),
                "0-31",
                {1, 2},
                3,
                {"4-7,20-23", "8-11,24-27", "4-7,20-23"}},
           Case{"both nodes of the GPU's socket",
                "socket",
                big(),
                "0-31",
                {1, 2},
                2,
                {"0-7,16-23", "8-15,24-31"}},
           Case{"socket, with holes in the mask", "socket", big(), "0,5,9,20", {0}, 1, {"0,5,20"}},
           Case{"node, with holes in the mask", "node", big(), "0,5,9,20", {1}, 1, {"5,20"}},
           Case{"cores divided among the node's GPUs",
                "exclusive",
                big(),
                "0-31",
                {0, 0, 0, 1},
                4,
                {"0-1,16-17", "2,18", "3,19", "4-7,20-23"}},
           Case{"a GPU without a worker keeps its share",
                "exclusive",
                big(),
                "0-31",
                {0, 0},
                1,
                {"0-1,16-17"}},
           Case{"half a core is a core", "exclusive", big(), "0,2,18", {0, 0}, 2, {"0", "2,18"}},
           Case{"caches in turn",
                "core-complex",
                big(),
                "0-31",
                {0, 0, 0},
                3,
                {"0-1,16-17", "2-3,18-19", "0-1,16-17"}},
           Case{"the larger cache first", "core-complex", uneven, "0-31", {0, 0}, 2, {"1-3,17-19", "0,16"}},
           Case{"what is allowed of a cache counts",
                "core-complex",
                uneven,
                "0,3,16",
                {0, 0},
                2,
                {"0,16", "3"}},
           Case{"no GPU: in blocks",
                "node",
                big(),
                "0-31",
                {},
                8,
                {"0-3,16-19", "0-3,16-19", "4-7,20-23", "4-7,20-23", "8-11,24-27", "8-11,24-27",
                 "12-15,28-31", "12-15,28-31"}},
           Case{"no GPU: few workers apart", "socket", big(), "0-31", {}, 2, {"0-7,16-23", "8-15,24-31"}},
           Case{"no GPU: only nodes that we may use", "node", big(), "4-7,13", {}, 2, {"4-7", "4-7"}},
           Case{"no GPU: as many workers as cores",
                "exclusive",
                big(),
                "0,4-7",
                {},
                5,
                {"0", "4", "5", "6", "7"}},
           Case{"more workers than cores", "node", flat, "0-1", {}, 3, {"0-1", "0-1", "0-1"}},
           Case{"nothing known but the node", "exclusive", flat, "0-1", {}, 2, {"0", "1"}},
           Case{"nothing known of caches", "core-complex", flat, "0-1", {}, 2, {"0", "1"}},
           Case{"nothing known of sockets", "socket", flat, "1", {}, 1, {"1"}},
       }) {
    const BindingInput input{parse_numa_binding(c.mode).value(), c.topology, cpus(c.allowed), c.device_nodes,
                             c.workers};
    std::vector<std::string> decided;
    for (const CpuSet& set : decide_binding(input)) decided.push_back(to_text(set));
    EXPECT_EQ(decided, c.expected) << c.what;
  }
}

TEST(NumaBinding, NobodyGetsACoreTwiceNorOneThatWeMayNotUse) {
  const CpuSet allowed = cpus("0-9,12-15,16-20,24,28-31");
  for (int workers = 1; workers <= 14; ++workers) {
    CpuSet given;
    for (const CpuSet& set : decide_binding({NumaBinding::Exclusive, big(), allowed, {}, workers})) {
      EXPECT_FALSE(set.empty()) << workers;
      for (const int cpu : set) {
        EXPECT_TRUE(allowed.count(cpu) == 1) << cpu;
        EXPECT_TRUE(given.insert(cpu).second) << cpu << " twice among " << workers;
      }
    }
  }
}

TEST(NumaBinding, SaysWhyNot) {
  Topology memory_only = big();
  memory_only.nodes[4] = {};
  struct Refusal {
    const char* mode;
    Topology topology;
    const char* allowed;
    std::vector<int> device_nodes;
    int workers;
    const char* sentence;
  };
  for (const Refusal& c : {
           Refusal{"node",
                   big(),
                   "0-3",
                   {2},
                   1,
                   "local rank 0 belongs to NUMA node 2, of which cpprun may use no"},
           Refusal{"node", big(), "0-31", {0, 9}, 2, "local rank 1 belongs to NUMA node 9"},
           Refusal{"node", memory_only, "0-31", {4}, 1, "node 4"},
           Refusal{"exclusive",
                   big(),
                   "0-31",
                   {0, 0, 0, 0, 0},
                   1,
                   "4 physical cores that cpprun may use, too few"},
           Refusal{"exclusive", big(), "5,21", {}, 2, "NUMA node 1 has 1 physical core that"},
           Refusal{"node", big(), "40", {}, 1, "no NUMA node has a CPU"},
       }) {
    try {
      decide_binding(
          {parse_numa_binding(c.mode).value(), c.topology, cpus(c.allowed), c.device_nodes, c.workers});
      ADD_FAILURE() << c.sentence;
    } catch (const std::invalid_argument& error) {
      EXPECT_THAT(error.what(), HasSubstr(c.sentence));
    }
  }
}

class TopologyTest : public ::testing::Test {
 protected:
  TopologyTest() {
    std::string name = (fs::temp_directory_path() / "cpprun-topology-XXXXXX").string();
    root_ = ::mkdtemp(name.data());
  }
  ~TopologyTest() override { fs::remove_all(root_); }
  void write(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text << "\n";
  }
  void write_gpu(const std::string& address, const std::string& uuid, const std::string& node) {
    write("proc/driver/nvidia/gpus/" + address + "/information",
          "Model: \t\t Some GPU\nIRQ:   \t\t 34\nGPU UUID: \t " + uuid + "\nVideo BIOS: \t ??");
    write("sys/bus/pci/devices/" + address + "/numa_node", node);
  }
  fs::path root_;
};

TEST_F(TopologyTest, ReadsNodesCoresAndCaches) {
  for (int cpu = 0; cpu < 12; ++cpu) {
    const std::string folder = "sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/";
    write(folder + "topology/physical_package_id", std::to_string(cpu / 6));
    write(folder + "topology/thread_siblings_list", to_text({cpu / 2 * 2, cpu / 2 * 2 + 1}));
    for (const auto& [index, level, type, shared] :
         {std::tuple{0, 1, "Data", "0"}, std::tuple{1, 1, "Instruction", "0"},
          std::tuple{2, 3, "Unified", "0-5"}, std::tuple{3, 4, "Instruction", "0-11"},
          std::tuple{10, 2, "Unified", "0-1"}}) {
      const std::string cache = folder + "cache/index" + std::to_string(index) + "/";
      write(cache + "level", std::to_string(level));
      write(cache + "type", type);
      write(cache + "shared_cpu_list", shared);
    }
  }
  write("sys/devices/system/cpu/cpufreq/x", "no CPU");
  write("sys/devices/system/node/node0/cpulist", "0-5");
  write("sys/devices/system/node/node1/cpulist", "6-11");
  write("sys/devices/system/node/node2/cpulist", "");  // memory alone
  const Topology topology = read_topology(root_);
  EXPECT_EQ(topology.nodes, (std::map<int, CpuSet>{{0, cpus("0-5")}, {1, cpus("6-11")}, {2, {}}}));
  EXPECT_EQ(topology.package.at(5), 0);
  EXPECT_EQ(topology.package.at(11), 1);
  EXPECT_EQ(topology.siblings.at(11), cpus("10-11"));
  EXPECT_EQ(topology.cache.at(0), cpus("0-5"));
}

TEST_F(TopologyTest, MachineWithoutNodesIsOne) {
  for (const char* cpu : {"cpu0", "cpu1"}) fs::create_directories(root_ / "sys/devices/system/cpu" / cpu);
  EXPECT_EQ(read_topology(root_).nodes, (std::map<int, CpuSet>{{0, cpus("0-1")}}));
}

TEST_F(TopologyTest, GpusAsCudaCountsThem) {
  EXPECT_THAT(read_gpu_nodes("0", root_), IsEmpty());  // no driver
  write_gpu("0000:b1:00.0", "GPU-cc", "1");
  write_gpu("0000:1a:00.0", "GPU-aa", "0");
  write_gpu("0000:3b:00.0", "GPU-bb", "-1");
  EXPECT_THAT(read_gpu_nodes(std::nullopt, root_), ElementsAre(0, -1, 1));
  EXPECT_THAT(read_gpu_nodes("2, 0", root_), ElementsAre(1, 0));
  EXPECT_THAT(read_gpu_nodes("GPU-c,0,7,1", root_), ElementsAre(1, 0));  // ends at the first that is none
  EXPECT_THAT(read_gpu_nodes("", root_), IsEmpty());
  EXPECT_THROW(read_gpu_nodes("MIG-aa", root_), std::invalid_argument);
}

TEST(AffinityMask, OneBitACpu) {
  EXPECT_THAT(affinity_mask(cpus("0,3,63")), ElementsAre(1UL | 8UL | 1UL << 63));
  EXPECT_THAT(affinity_mask(cpus("64,130")), ElementsAre(0UL, 1UL, 4UL));
  EXPECT_FALSE(own_cpus().empty());
}

}  // namespace
}  // namespace cpprun::launcher
