// The sentence of an exception, for people.
#pragma once

#include <boost/system/system_error.hpp>
#include <exception>
#include <string>

namespace cpprun::rendezvous {

// As what() has it; of Boost's errors the message alone, without the place in Boost's sources.
inline std::string error_text(const std::exception& error) {
  const auto* of_boost = dynamic_cast<const boost::system::system_error*>(&error);
  return of_boost ? of_boost->code().message() : error.what();
}

}  // namespace cpprun::rendezvous
