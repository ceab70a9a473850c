#include "worker_runtime/error_text.hpp"

#include <c10/util/Exception.h>
#include <cxxabi.h>

#include <cstdlib>
#include <memory>
#include <typeinfo>

namespace cpprun::worker {

std::string error_text(const std::exception& error) {
  const c10::Error* torch_error = dynamic_cast<const c10::Error*>(&error);
  const std::string text = torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) {
    return "(no message)";
  }
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

std::string error_type(const std::exception& error) {
  const char* mangled = typeid(error).name();
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> name(
      abi::__cxa_demangle(mangled, nullptr, nullptr, &status), &std::free);
  return name ? name.get() : mangled;
}

std::string error_callstack(const std::exception& error) {
  const c10::Error* torch_error = dynamic_cast<const c10::Error*>(&error);
  if (torch_error == nullptr || torch_error->backtrace() == nullptr) {
    return "";
  }
  return torch_error->backtrace()->get();
}

}  // namespace cpprun::worker
