// An open file that closes with its owner.
#pragma once

#include <unistd.h>

#include <utility>

namespace cpprun::launcher {

class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() { close(); }
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    if (this != &other) {
      close();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }

 private:
  void close() {
    if (fd_ >= 0) ::close(fd_);
  }

  int fd_ = -1;
};

}  // namespace cpprun::launcher
