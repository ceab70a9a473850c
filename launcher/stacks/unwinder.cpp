#include "launcher/stacks/unwinder.hpp"

#include <cxxabi.h>
#include <elfutils/libdwfl.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <stdexcept>

#include "launcher/stacks/elf_files.hpp"
#include "launcher/stacks/process_maps.hpp"

namespace cpprun::stacks {
namespace {

constexpr std::size_t kMostFrames = 256;
// Names of templates can be of any length; what tells functions apart stands in front.
constexpr std::size_t kLongestName = 600;
constexpr std::size_t kLongestMangled = 16 * 1024;
// A symbol without a size is taken to reach no further: behind it may be a function without a symbol.
constexpr std::uint64_t kReachOfUnsized = 4096;

std::string shortened(std::string name) {
  if (name.size() <= kLongestName) return name;
  name.resize(kLongestName);
  return name + "...";
}

std::string demangled(const std::string& symbol) {
  // "pthread_cond_wait@@GLIBC_2.3.2": the version says nothing here.
  const std::string mangled = symbol.substr(0, symbol.find('@', 1));
  if (!mangled.starts_with("_Z") || mangled.size() > kLongestMangled) return shortened(mangled);
  int status = 0;
  char* text = abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status);
  std::string result = shortened(status == 0 && text ? std::string(text) : mangled);
  std::free(text);
  return result;
}

std::string function_at(Dwfl_Module* module, std::uint64_t pc) {
  GElf_Off offset = 0;
  GElf_Sym symbol{};
  const char* name = ::dwfl_module_addrinfo(module, pc, &offset, &symbol, nullptr, nullptr, nullptr);
  if (!name || !*name) return "";
  // libdw gives the nearest symbol before the address, though it may have ended long ago.
  const std::uint64_t reach = symbol.st_size != 0 ? symbol.st_size : kReachOfUnsized;
  return offset < reach ? demangled(name) : "";
}

}  // namespace

class Unwinder::Session {
 public:
  explicit Session(const ProcessCapture& capture)
      : capture_(capture), modules_(code_modules(parse_maps(capture.maps))) {
    dwfl_ = ::dwfl_begin(&kFiles);
    if (!dwfl_) throw std::runtime_error(std::string("libdw: ") + ::dwfl_errmsg(-1));
    report_modules();
    attach();
  }
  ~Session() {
    ::dwfl_end(dwfl_);
    ::elf_end(own_elf_);
    if (own_fd_ >= 0) ::close(own_fd_);
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  UnwoundThread unwind(const CapturedThread& thread) {
    current_ = &thread;
    unwound_ = {};
    unwound_.tid = thread.tid;
    const int end = ::dwfl_getthread_frames(dwfl_, kAnyThread, &Session::on_frame, this);
    if (unwound_.frames.size() >= kMostFrames) {
      unwound_.note = "only the innermost frames are shown";
    } else if (end == -1) {
      // The outermost frame of many threads ends in such an error, so it is worth a word only at the start.
      const char* why = ::dwfl_errmsg(-1);
      if (unwound_.frames.size() <= 1) unwound_.note = why ? why : "cannot be unwound";
    }
    return std::move(unwound_);
  }

 private:
  // libdw asks for threads by number; there is one at a time here.
  static constexpr pid_t kAnyThread = 1;

  void report_modules() {
    ::dwfl_report_begin(dwfl_);
    for (const Module& module : modules_) {
      Dwfl_Module* reported = ::dwfl_report_module(dwfl_, module.path.c_str(), module.start, module.end);
      if (!reported) continue;
      void** data = nullptr;
      ::dwfl_module_info(reported, &data, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr);
      if (data) *data = new_reference(module);
    }
    ::dwfl_report_end(dwfl_, nullptr, nullptr);
  }

  // Which machine's rules of unwinding hold is told by an ELF file: the capture is of this machine, as we
  // are.
  void attach() {
    own_fd_ = ::open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    own_elf_ = own_fd_ >= 0 ? ::elf_begin(own_fd_, ELF_C_READ_MMAP, nullptr) : nullptr;
    if (!::dwfl_attach_state(dwfl_, own_elf_, kAnyThread, &kThreads, this)) {
      throw std::runtime_error(std::string("libdw: ") + ::dwfl_errmsg(-1));
    }
  }

  struct Reference {
    Session* session;
    const Module* module;
  };
  Reference* new_reference(const Module& module) {
    references_.push_back(std::make_unique<Reference>(Reference{this, &module}));
    return references_.back().get();
  }

  const MemoryRegion* vdso() const {
    const auto module = std::find_if(modules_.begin(), modules_.end(),
                                     [](const Module& one) { return one.path == "[vdso]"; });
    if (module == modules_.end()) return nullptr;
    const auto region = std::find_if(capture_.memory.begin(), capture_.memory.end(),
                                     [&](const MemoryRegion& one) { return one.start == module->start; });
    return region == capture_.memory.end() ? nullptr : &*region;
  }

  static int find_elf(Dwfl_Module*, void** data, const char*, Dwarf_Addr, char**, Elf** elf) {
    const Reference* reference = static_cast<const Reference*>(*data);
    if (!reference) return -1;
    Session& session = *reference->session;
    if (reference->module->path == "[vdso]") {
      const MemoryRegion* region = session.vdso();
      // libelf promises to write only where it was told to update.
      if (region) *elf = ::elf_memory(const_cast<char*>(region->bytes.data()), region->bytes.size());
      return -1;
    }
    const OpenElf opened = open_elf(*reference->module, session.capture_.pid);
    *elf = opened.elf;
    return opened.fd;
  }

  static pid_t next_thread(Dwfl*, void*, void** thread) {
    if (*thread) return 0;
    *thread = const_cast<pid_t*>(&kAnyThread);
    return kAnyThread;
  }
  static bool get_thread(Dwfl*, pid_t, void* session, void** thread) {
    *thread = session;
    return true;
  }

  static bool read_memory(Dwfl* dwfl, Dwarf_Addr address, Dwarf_Word* result, void* argument) {
    Session& session = *static_cast<Session*>(argument);
    std::vector<const MemoryRegion*> regions{&session.current_->stack};
    for (const MemoryRegion& region : session.capture_.memory) regions.push_back(&region);
    for (const MemoryRegion* region : regions) {
      if (!region->holds(address, sizeof *result)) continue;
      std::copy_n(region->bytes.data() + (address - region->start), sizeof *result,
                  reinterpret_cast<char*>(result));
      return true;
    }
    Dwfl_Module* module = ::dwfl_addrmodule(dwfl, address);
    GElf_Addr bias = 0;
    Elf* elf = module ? ::dwfl_module_getelf(module, &bias) : nullptr;
    const std::optional<std::uint64_t> word = elf ? read_word(elf, bias, address) : std::nullopt;
    if (word) *result = *word;
    return word.has_value();
  }

  static bool set_registers(Dwfl_Thread* thread, void* argument) {
    const CapturedThread& captured = *static_cast<Session*>(argument)->current_;
    for (const Register& one : captured.registers) {
      const Dwarf_Word value = one.value;
      if (!::dwfl_thread_state_registers(thread, static_cast<int>(one.number), 1, &value)) return false;
    }
    ::dwfl_thread_state_register_pc(thread, captured.pc);
    return true;
  }

  static int on_frame(Dwfl_Frame* frame, void* argument) {
    Session& session = *static_cast<Session*>(argument);
    Dwarf_Addr pc = 0;
    bool activation = false;
    if (!::dwfl_frame_pc(frame, &pc, &activation)) return DWARF_CB_ABORT;
    // A return address may be the first of another function: the call is what stands before it.
    session.unwound_.frames.push_back(session.named(pc, activation || pc == 0 ? pc : pc - 1));
    return session.unwound_.frames.size() < kMostFrames ? DWARF_CB_OK : DWARF_CB_ABORT;
  }

  NamedFrame named(std::uint64_t pc, std::uint64_t inside) {
    NamedFrame frame;
    frame.offset = pc;
    Dwfl_Module* module = ::dwfl_addrmodule(dwfl_, inside);
    if (!module) return frame;
    Dwarf_Addr start = 0;
    const char* path =
        ::dwfl_module_info(module, nullptr, &start, nullptr, nullptr, nullptr, nullptr, nullptr);
    frame.module = path ? path : "";
    frame.offset = pc - start;
    frame.function = function_at(module, inside);
    if (Dwfl_Line* line = ::dwfl_module_getsrc(module, inside)) {
      const char* file = ::dwfl_lineinfo(line, nullptr, &frame.line, nullptr, nullptr, nullptr);
      frame.file = file ? file : "";
    }
    return frame;
  }

  static const Dwfl_Callbacks kFiles;
  static const Dwfl_Thread_Callbacks kThreads;

  const ProcessCapture& capture_;
  std::vector<Module> modules_;
  std::vector<std::unique_ptr<Reference>> references_;
  Dwfl* dwfl_ = nullptr;
  int own_fd_ = -1;
  Elf* own_elf_ = nullptr;
  const CapturedThread* current_ = nullptr;
  UnwoundThread unwound_;
};

const Dwfl_Callbacks Unwinder::Session::kFiles{&Session::find_elf, &::dwfl_standard_find_debuginfo,
                                               &::dwfl_offline_section_address, nullptr};
const Dwfl_Thread_Callbacks Unwinder::Session::kThreads{&Session::next_thread,
                                                        &Session::get_thread,
                                                        &Session::read_memory,
                                                        &Session::set_registers,
                                                        nullptr,
                                                        nullptr};

Unwinder::Unwinder(const ProcessCapture& capture) {
  if (::elf_version(EV_CURRENT) == EV_NONE) throw std::runtime_error("libelf is too old");
  session_ = std::make_unique<Session>(capture);
}

Unwinder::~Unwinder() = default;

UnwoundThread Unwinder::unwind(const CapturedThread& thread) {
  return session_->unwind(thread);
}

}  // namespace cpprun::stacks
