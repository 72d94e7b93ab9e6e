#include <cstdlib>
#include <string>

#include "mpi.hpp"
#include "redblue/ranks/mpi/transport.hpp"
#include "report/standard_output.hpp"

namespace redblue::cli {
namespace {

/// MPI from the first need of it to the end of the program.
class Session {
 public:
  Session() {
    int level = 0;
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &level);
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session() { MPI_Finalize(); }
};

/// A transport that ends before MPI does.
class InSession final : public ranks::Transport {
 public:
  InSession() : own_(ranks::mpi_transport(MPI_COMM_WORLD)) {}
  int rank() const override { return own_->rank(); }
  int ranks() const override { return own_->ranks(); }
  std::unique_ptr<Pending> send(int to, int channel, std::span<const std::byte> message) override {
    return own_->send(to, channel, message);
  }
  std::unique_ptr<Pending> receive(int from, int channel, std::span<std::byte> message) override {
    return own_->receive(from, channel, message);
  }
  void progress() override { own_->progress(); }
  void give_up(std::string_view why) override {
    note(std::string(why));  // MPI ends all processes at once, this one too
    own_->give_up(why);
    MPI_Abort(MPI_COMM_WORLD, 2);
  }

 private:
  Session session_;
  std::unique_ptr<ranks::Transport> own_;
};

}  // namespace

std::unique_ptr<ranks::Transport> ranks_of_mpirun() {
  // Open MPI, MPICH and those made of it: alone, a program needs no MPI.
  bool started = false;
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS", "PMIX_RANK"})
    started = started || std::getenv(name) != nullptr;
  if (!started) return nullptr;
  auto transport = std::make_unique<InSession>();
  if (transport->ranks() == 1) return nullptr;
  return transport;
}

}  // namespace redblue::cli
