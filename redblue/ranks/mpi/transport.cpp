#include "redblue/ranks/mpi/transport.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "redblue/ranks/agree.hpp"
#include "redblue/ranks/channel.hpp"

namespace redblue::ranks {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kFailure = kChannels;                    // the tag of a rank's last words
constexpr std::size_t kAtOnce = std::size_t{1} << 30;  // bytes: counts of MPI 3.1 are int

void check(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int size = 0;
  MPI_Error_string(code, text, &size);
  throw RankError(fmt::format("{}: {}", call, std::string(text, static_cast<std::size_t>(size))));
}

/// Between two looks at a message: soon at first, then in a while.
void pause_after(int turn) {
  constexpr int kSpins = 1000;
  if (turn > kSpins) std::this_thread::sleep_for(std::chrono::microseconds(20));
}

class MpiTransport final : public Transport {
 public:
  MpiTransport(MPI_Comm comm, std::chrono::milliseconds patience) {
    require_mpi();
    if (comm == MPI_COMM_NULL) throw RankError("MPI_COMM_NULL has no ranks: give a communicator that this rank is in");
    duplicate(comm, patience);
    MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
    check(MPI_Comm_rank(comm_, &rank_), "MPI_Comm_rank");
    check(MPI_Comm_size(comm_, &ranks_), "MPI_Comm_size");
  }
  /// After an error messages may be on their way that nobody will receive. MPI must not give their context to another
  /// communicator, where they would be taken for its own: this one then stays.
  ~MpiTransport() override {
    int ended = 0;
    MPI_Finalized(&ended);
    if (ended == 0 && !failed_) MPI_Comm_free(&comm_);
  }

  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }

  std::unique_ptr<Pending> send(int to, int channel, std::span<const std::byte> message) override {
    auto sent = std::make_unique<Requests>(*this);
    for (std::size_t at = 0; at < message.size() || at == 0; at += kAtOnce) {
      const auto size = static_cast<int>(std::min(kAtOnce, message.size() - at));
      check(MPI_Isend(message.data() + at, size, MPI_BYTE, to, channel, comm_, &sent->add()), "MPI_Isend");
    }
    return sent;
  }
  std::unique_ptr<Pending> receive(int from, int channel, std::span<std::byte> message) override {
    auto coming = std::make_unique<Requests>(*this);
    for (std::size_t at = 0; at < message.size() || at == 0; at += kAtOnce) {
      const auto size = static_cast<int>(std::min(kAtOnce, message.size() - at));
      check(MPI_Irecv(message.data() + at, size, MPI_BYTE, from, channel, comm_, &coming->add()), "MPI_Irecv");
    }
    return coming;
  }
  /// The last words leave with this process's MPI at the latest: nobody waits for them here. Who has heard others say
  /// theirs says nothing, for they told everyone.
  void give_up(std::string_view why) override {
    failed_ = true;
    if (heard_) return;
    auto words = std::make_unique<std::string>(fmt::format("rank {}: {}", rank_, why));
    for (int r = 0; r < ranks_; ++r) {
      if (r == rank_) continue;
      MPI_Request request = MPI_REQUEST_NULL;
      MPI_Isend(words->data(), static_cast<int>(words->size()), MPI_BYTE, r, kFailure, comm_, &request);
      if (request != MPI_REQUEST_NULL) MPI_Request_free(&request);
    }
    [[maybe_unused]] auto* const kept = words.release();  // MPI may read them later
  }
  void keep(std::vector<std::byte> bytes) override {  // for ever: its communicator stays, too
    auto kept = std::make_unique<std::vector<std::byte>>(std::move(bytes));
    [[maybe_unused]] auto* const for_ever = kept.release();
  }
  void progress() override {
    int any = 0;
    MPI_Iprobe(MPI_ANY_SOURCE, kFailure, comm_, &any, MPI_STATUS_IGNORE);
  }

 private:
  /// A message in pieces.
  class Requests final : public Pending {
   public:
    explicit Requests(MpiTransport& transport) : transport_(transport) {}
    /// One that is still on its way is let go: its memory must stay. (Only after an error.)
    ~Requests() override {
      for (MPI_Request& r : list_)
        if (r != MPI_REQUEST_NULL) transport_.failed_ = true, MPI_Cancel(&r), MPI_Request_free(&r);
    }
    MPI_Request& add() { return list_.emplace_back(MPI_REQUEST_NULL); }
    bool wait(std::chrono::milliseconds at_most) override {
      const auto deadline = Clock::now() + at_most;
      for (int turn = 0;; ++turn) {
        int done = 0;
        check(MPI_Testall(static_cast<int>(list_.size()), list_.data(), &done, MPI_STATUSES_IGNORE), "MPI_Testall");
        if (done != 0) return true;
        if (Clock::now() >= deadline) return false;
        transport_.require_nobody_gave_up();
        pause_after(turn);
      }
    }

   private:
    MpiTransport& transport_;
    std::vector<MPI_Request> list_;
  };

  /// As MPI_Comm_dup, which waits for ever where a rank never comes.
  void duplicate(MPI_Comm comm, std::chrono::milliseconds patience) {
    const auto deadline = Clock::now() + patience;
    MPI_Request request = MPI_REQUEST_NULL;
    auto made = std::make_unique<MPI_Comm>(MPI_COMM_NULL);
    check(MPI_Comm_idup(comm, made.get(), &request), "MPI_Comm_idup");
    for (int turn = 0, done = 0; done == 0; ++turn) {
      check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
      if (done == 0 && Clock::now() >= deadline) {
        [[maybe_unused]] auto* const kept = made.release();  // MPI writes there when the last rank comes
        throw RankError(fmt::format(
            "some rank of the communicator has not come within {} ms: does every rank call this?", patience.count()));
      }
      pause_after(turn);
    }
    comm_ = *made;
  }

  void require_nobody_gave_up() {
    int any = 0;
    MPI_Status status;
    check(MPI_Iprobe(MPI_ANY_SOURCE, kFailure, comm_, &any, &status), "MPI_Iprobe");
    if (any == 0) return;
    int size = 0;
    MPI_Get_count(&status, MPI_BYTE, &size);
    std::string words(static_cast<std::size_t>(size), ' ');
    check(MPI_Recv(words.data(), size, MPI_BYTE, status.MPI_SOURCE, kFailure, comm_, MPI_STATUS_IGNORE), "MPI_Recv");
    failed_ = heard_ = true;
    throw RankError(words);
  }

  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0, ranks_ = 0;
  bool failed_ = false, heard_ = false;
};

}  // namespace

void require_mpi() {
  int begun = 0, ended = 0;
  MPI_Initialized(&begun);
  MPI_Finalized(&ended);
  if (begun == 0) throw RankError("MPI is not initialised: call MPI_Init_thread(..., MPI_THREAD_FUNNELED, ...) first");
  if (ended != 0) throw RankError("MPI has ended: call this before MPI_Finalize");
}

std::unique_ptr<Transport> mpi_transport(MPI_Comm comm, std::chrono::milliseconds patience) {
  return std::make_unique<MpiTransport>(comm, patience);
}

void require_level(const How& how) {
  int level = MPI_THREAD_SINGLE;
  MPI_Query_thread(&level);
  if (how.threads != 1 && level < MPI_THREAD_FUNNELED)
    throw RankError(
        "MPI was initialised for one thread: ask MPI_Init_thread for MPI_THREAD_FUNNELED, or run with threads = 1");
}

Ran run(const World& world, MPI_Comm comm, const Tensors& tensors, const How& how) {
  const auto transport = mpi_transport(comm, how.patience);
  try {
    require_level(how);
  } catch (const RankError&) {
    if (how.agree)
      agree(*transport, "", std::current_exception(), how.patience);  // others may have what this one lacks
    throw;
  }
  return run(world, *transport, tensors, how);
}

}  // namespace redblue::ranks
