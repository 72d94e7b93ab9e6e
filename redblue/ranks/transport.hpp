#pragma once
#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "redblue/language/error.hpp"

namespace redblue::ranks {

/// Another rank failed, or does not answer; or what carries messages failed.
class RankError : public Error {
 public:
  using Error::Error;
};

/// Carries messages between ranks: MPI, process groups of torch, threads of one process, or one of your own. Messages
/// from one rank to another on one channel arrive in the order in which they were sent.
class Transport {
 public:
  /// A message on its way.
  class Pending {
   public:
    Pending() = default;
    Pending(const Pending&) = delete;
    Pending& operator=(const Pending&) = delete;
    virtual ~Pending() = default;
    /// Has it arrived, or left the sender's memory? Waits for at most so long. Throws RankError where it never will.
    virtual bool wait(std::chrono::milliseconds at_most) = 0;
  };

  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;
  virtual ~Transport() = default;

  virtual int rank() const = 0;
  virtual int ranks() const = 0;
  /// The bytes stay as they are, and where they are, until the message is no longer pending. Neither call waits for the
  /// other rank.
  virtual std::unique_ptr<Pending> send(int to, int channel, std::span<const std::byte> message) = 0;
  virtual std::unique_ptr<Pending> receive(int from, int channel, std::span<std::byte> message) = 0;
  /// Called now and then while the rank works: messages that move only while somebody looks after them go on.
  virtual void progress() {}
  /// This rank gives up, and says why: others that wait for its messages should throw, if the transport can tell them.
  virtual void give_up(std::string_view why) = 0;
  /// Bytes of a message that nobody waits for any longer, after an error: what carries it may still read them, or write
  /// there. They stay for as long as that may be, at least until this ends.
  virtual void keep(std::vector<std::byte> bytes) { kept_.push_back(std::move(bytes)); }

 private:
  std::vector<std::vector<std::byte>> kept_;
};

}  // namespace redblue::ranks
