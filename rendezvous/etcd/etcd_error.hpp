// Why etcd could not do what it was asked.
#pragma once

#include <stdexcept>
#include <string>

namespace cpprun::rendezvous {

enum class EtcdFailure {
  Unreachable,  // no endpoint could be connected to; nothing was sent
  // No answer in time, a connection that broke, or a cluster without a leader. Whether the request took
  // effect is unknown: it may even do so later. Trying again is of use, perhaps at another endpoint.
  NoAnswer,
  Refused,  // trying again is of no use: no permission, an untrusted certificate, not an etcd
};

// One sentence that names the endpoint and the cause.
class EtcdError : public std::runtime_error {
 public:
  EtcdError(EtcdFailure failure, const std::string& sentence)
      : std::runtime_error(sentence), failure_(failure) {}
  EtcdFailure failure() const { return failure_; }

 private:
  EtcdFailure failure_;
};

}  // namespace cpprun::rendezvous
