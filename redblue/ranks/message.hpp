#pragma once
#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "redblue/ranks/transport.hpp"

namespace redblue::ranks {

/// The bytes of a message and its way. Where it ends before they have arrived, after an error, the transport keeps
/// them.
class Message {
 public:
  explicit Message(std::vector<std::byte> bytes) : bytes_(std::move(bytes)) {}
  Message(Message&&) noexcept = default;
  Message& operator=(Message&&) noexcept = default;
  Message(const Message&) = delete;
  Message& operator=(const Message&) = delete;
  ~Message() {
    if (pending_ == nullptr || done_) return;
    pending_.reset();
    transport_->keep(std::move(bytes_));
  }

  std::span<std::byte> bytes() { return bytes_; }
  std::size_t size() const { return bytes_.size(); }
  void send(Transport& transport, int to, int channel) {
    transport_ = &transport;
    pending_ = transport.send(to, channel, bytes_);
  }
  void receive(Transport& transport, int from, int channel) {
    transport_ = &transport;
    pending_ = transport.receive(from, channel, bytes_);
  }
  /// As Transport::Pending::wait.
  bool wait(std::chrono::milliseconds at_most) {
    done_ = done_ || pending_->wait(at_most);
    return done_;
  }

 private:
  std::vector<std::byte> bytes_;
  Transport* transport_ = nullptr;
  std::unique_ptr<Transport::Pending> pending_;
  bool done_ = false;
};

}  // namespace redblue::ranks
