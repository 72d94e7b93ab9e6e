#include "redblue/ranks/in_process.hpp"

#include <fmt/format.h>

#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <tuple>

#include "redblue/language/error.hpp"

namespace redblue::ranks {
namespace {

using Clock = std::chrono::steady_clock;

/// Messages on their way between threads.
class Mailboxes {
 public:
  using Address = std::tuple<int, int, int>;  // from, to, channel

  void put(const Address& address, std::span<const std::byte> message, Clock::time_point ready) {
    const std::lock_guard lock(mutex_);
    auto& box = boxes_[address];
    if (!box.empty()) ready = std::max(ready, box.back().ready);
    box.push_back({{message.begin(), message.end()}, ready});
    changed_.notify_all();
  }
  /// The next message, once it is ready; else false after `at_most`.
  bool take(const Address& address, std::span<std::byte> into, std::chrono::milliseconds at_most) {
    const auto deadline = Clock::now() + at_most;
    std::unique_lock lock(mutex_);
    while (true) {
      auto& box = boxes_[address];
      if (!box.empty() && box.front().ready <= Clock::now()) break;
      if (box.empty() && !failure_.empty()) throw RankError(failure_);
      if (Clock::now() >= deadline) return false;
      changed_.wait_until(lock, box.empty() ? deadline : std::min(deadline, box.front().ready));
    }
    auto& box = boxes_[address];
    if (box.front().bytes.size() != into.size())
      throw std::logic_error(
          fmt::format("a message of {} bytes where {} were expected", box.front().bytes.size(), into.size()));
    std::memcpy(into.data(), box.front().bytes.data(), into.size());
    box.pop_front();
    return true;
  }
  void fail(const std::string& why) {
    const std::lock_guard lock(mutex_);
    if (failure_.empty()) failure_ = why;
    changed_.notify_all();
  }

 private:
  struct Message {
    std::vector<std::byte> bytes;
    Clock::time_point ready;
  };
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Address, std::deque<Message>> boxes_;
  std::string failure_;
};

class ThreadTransport final : public Transport {
 public:
  ThreadTransport(Mailboxes& boxes, int rank, int ranks, std::uint64_t delays)
      : boxes_(boxes),
        rank_(rank),
        ranks_(ranks),
        delayed_(delays != 0),
        random_(delays * 1'000'003 + static_cast<std::uint64_t>(rank)) {}

  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }
  std::unique_ptr<Pending> send(int to, int channel, std::span<const std::byte> message) override {
    const auto delay = std::chrono::microseconds(delayed_ ? random_() % 1000 : 0);
    boxes_.put({rank_, to, channel}, message, Clock::now() + delay);
    return std::make_unique<Gone>();
  }
  std::unique_ptr<Pending> receive(int from, int channel, std::span<std::byte> message) override {
    return std::make_unique<Coming>(boxes_, Mailboxes::Address{from, rank_, channel}, message);
  }
  void give_up(std::string_view why) override { boxes_.fail(fmt::format("rank {}: {}", rank_, why)); }

 private:
  struct Gone final : Pending {
    bool wait(std::chrono::milliseconds) override { return true; }
  };
  struct Coming final : Pending {
    Coming(Mailboxes& boxes, Mailboxes::Address address, std::span<std::byte> into)
        : boxes(boxes), address(std::move(address)), into(into) {}
    bool wait(std::chrono::milliseconds at_most) override {
      arrived = arrived || boxes.take(address, into, at_most);
      return arrived;
    }
    Mailboxes& boxes;
    Mailboxes::Address address;
    std::span<std::byte> into;
    bool arrived = false;
  };

  Mailboxes& boxes_;
  int rank_, ranks_;
  bool delayed_;
  std::mt19937_64 random_;
};

}  // namespace

std::vector<Ran> run_in_process(const World& world, std::span<const Tensors> tensors, const How& how,
                                std::uint64_t delays) {
  const int ranks = world.ranks();
  if (tensors.size() != static_cast<std::size_t>(ranks))
    throw InvalidProblem(fmt::format("tensors of {} ranks for a layout of {}", tensors.size(), ranks));
  Mailboxes boxes;
  std::vector<Ran> ran(tensors.size());
  std::exception_ptr first;
  std::mutex mutex;
  std::vector<std::thread> threads;
  threads.reserve(tensors.size());
  for (int r = 0; r < ranks; ++r)
    threads.emplace_back([&, r] {
      ThreadTransport transport(boxes, r, ranks, delays);
      How own = how;
      if (how.kept != nullptr) own.kept += r;
      try {
        ran[static_cast<std::size_t>(r)] = run(world, transport, tensors[static_cast<std::size_t>(r)], own);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (first == nullptr) first = std::current_exception();
      }
    });
  for (std::thread& t : threads) t.join();
  if (first != nullptr) std::rethrow_exception(first);
  return ran;
}

}  // namespace redblue::ranks
