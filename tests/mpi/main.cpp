#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <optional>

#include "ranks/drawn_layout.hpp"
#include "ranks/shared.hpp"
#include "redblue/planner/planner.hpp"
#include "redblue/ranks/in_process.hpp"
#include "redblue/ranks/mpi/transport.hpp"
#include "support/cases.hpp"

/// Attention over MPI gives the bits that threads of one process give, and MPI itself sees the bytes and messages of
/// the formula. Start it with mpirun -n P; it says on rank 0 what it did, and its exit status is 1 where something is
/// wrong.
namespace {
/// What this process sent, by the tag of messages, as MPI's profiling interface sees it.
struct Sent {
  long long messages = 0, bytes = 0;
};
Sent sent_by_tag[3];
}  // namespace

extern "C" int MPI_Isend(const void* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
                         MPI_Request* request) {
  int size = 0;
  MPI_Type_size(type, &size);
  if (tag >= 0 && tag < 3) {
    ++sent_by_tag[tag].messages;
    sent_by_tag[tag].bytes += static_cast<long long>(count) * size;
  }
  return PMPI_Isend(data, count, type, to, tag, comm, request);
}

namespace redblue::test {
namespace {

int wrong = 0;

void expect(bool holds, const std::string& what) {
  if (holds) return;
  ++wrong;
  fmt::print(stderr, "wrong: {}\n", what);
}

ranks::How how_here() {
  ranks::How how;
  how.threads = 1;
  how.plan.M = 300;
  how.patience = std::chrono::seconds(60);
  return how;
}

/// The same on every rank, from a seed; nothing where problem and layout do not go together.
std::optional<ranks::World> drawn(std::uint64_t seed, int ranks) {
  DrawnRanks draw(seed);
  const Problem p = draw.problem(draw.one_in(2) ? Operation::forward : Operation::backward, 24);
  for (int tries = 0; tries < 50; ++tries) {
    const ranks::Layout layout = draw.layout(ranks);
    if (layout.ranks() != ranks) continue;
    try {
      return ranks::World(p, layout);
    } catch (const InvalidProblem&) {
    }
  }
  return std::nullopt;
}

Filled filled(const Problem& p) {
  Problem asked = p;
  asked.lse_required = is_forward(p.op);
  Filled x(asked, DType::f32, Strides::bhsd);
  if (is_forward(p.op)) return x;
  asked.op = Operation::forward;
  asked.lse_required = true;
  asked.bias_gradient = asked.sinks_gradient = false;
  run(plan::make_plan(asked, {.M = 300}), x.tensors());
  return x;
}

/// The bytes of outputs of one rank.
std::vector<std::vector<unsigned char>> outputs_of(const Problem& p, const Tensors& own) {
  std::vector<std::vector<unsigned char>> all;
  for (const SlowArray a : facts_of(p.op).writes) {
    const Tensor& t = own[a];
    if (t.data == nullptr) continue;
    const auto* data = static_cast<const unsigned char*>(t.data);
    all.emplace_back(data, data + t.shape[0] * t.strides[0] * static_cast<index_t>(size_of(t.dtype)));
  }
  return all;
}

void compare_with_threads(int rank, int ranks) {
  int ran = 0;
  for (std::uint64_t seed = 1; ran < cases(30); ++seed) {
    const std::optional<ranks::World> world = drawn(seed, ranks);
    if (!world) continue;
    Filled x = filled(world->problem()), y = filled(world->problem());
    Shared over_mpi(*world, x), in_threads(*world, y);
    const auto tensors = over_mpi.tensors(), others = in_threads.tensors();
    const auto r = static_cast<std::size_t>(rank);
    for (Sent& s : sent_by_tag) s = {};
    const ranks::Ran did = run(*world, MPI_COMM_WORLD, tensors[r], how_here());
    const ranks::Traffic& planned = crossing_of(*world, rank).sent;
    constexpr int kWord = 4;
    expect(Words(sent_by_tag[0].bytes) == planned.inputs * kWord &&
               Words(sent_by_tag[1].bytes) == planned.partials * kWord &&
               Words(sent_by_tag[0].messages + sent_by_tag[1].messages) == planned.messages,
           fmt::format("seed {}: rank {} sent {} + {} bytes in {} messages; planned {} + {} words in {}", seed, rank,
                       sent_by_tag[0].bytes, sent_by_tag[1].bytes, sent_by_tag[0].messages + sent_by_tag[1].messages,
                       planned.inputs.str(), planned.partials.str(), planned.messages.str()));
    run_in_process(*world, others, how_here());
    expect(did.crossed == crossing_of(*world, rank), fmt::format("seed {}: words on rank {}", seed, rank));
    expect(outputs_of(world->problem(), tensors[r]) == outputs_of(world->problem(), others[r]),
           fmt::format("seed {}: bits on rank {}", seed, rank));
    ++ran;
  }
  if (rank == 0) fmt::print("{} problems over {} ranks\n", ran, ranks);
}

/// Reproducible results over MPI have the bits of one rank alone.
void compare_with_one_rank(int rank, int ranks) {
  for (const Operation op : {Operation::forward, Operation::backward}) {
    Problem p;
    p.op = op;
    p.heads = 2;
    p.kv_heads = 1;
    p.n_q = p.n_k = 53;
    p.d = p.d_v = 5;
    p.causal = true;
    const ranks::Layout layout{.grid_rows = ranks,
                               .transfer = ranks::Transfer::gather,
                               .ownership = ranks::Ownership::zig_zag,
                               .reproducible = 4};
    const ranks::World world(p, layout), alone(p, {.reproducible = 4});
    ranks::How how = how_here();
    how.plan.M = 0;
    Filled x = filled(p), y = filled(p);
    Shared over_mpi(world, x), one(alone, y);
    const auto r = static_cast<std::size_t>(rank);
    const auto tensors = over_mpi.tensors(), whole = one.tensors();
    run(world, MPI_COMM_WORLD, tensors[r], how);
    run_in_process(alone, whole, how);
    one.collect();
    Shared expected(world, y);
    expect(outputs_of(p, tensors[r]) == outputs_of(p, expected.tensors()[r]),
           fmt::format("{}: rank {} has the bits of one rank", name_of(op), rank));
  }
}

std::string thrown_by_run(const ranks::World& world, const Tensors& tensors, const ranks::How& how) {
  try {
    run(world, MPI_COMM_WORLD, tensors, how);
  } catch (const Error& e) {
    return e.what();
  }
  return "nothing";
}

/// One rank alone asks for another thing, or fails half-way: all ranks say so.
void fail_together(int rank, int ranks) {
  Problem p;
  p.n_q = p.n_k = 5 * ranks;
  p.d = p.d_v = 3;
  ranks::Layout layout;
  layout.grid_rows = ranks;
  Problem other = p;
  other.scale = 0.5;
  const ranks::World world(p, layout), another(other, layout);
  Filled x = filled(p);
  Shared shared(world, x);
  auto tensors = shared.tensors();
  const auto r = static_cast<std::size_t>(rank);
  const std::string different = thrown_by_run(rank == ranks - 1 ? another : world, tensors[r], how_here());
  expect(different.find("was not asked for what rank 0 was") != std::string::npos, different);
  ranks::How how = how_here();
  if (rank == ranks - 1) how.plan.M = 2;  // no schedule fits
  const std::string half_way = thrown_by_run(world, tensors[r], how);
  expect(half_way != "nothing", "a rank whose plan fails ends the run of all");
}

int all_of(int argc, char** argv) {
  int level = 0, rank = 0, ranks = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  compare_with_threads(rank, ranks);
  compare_with_one_rank(rank, ranks);
  if (ranks > 1) fail_together(rank, ranks);
  int all_wrong = 0;
  MPI_Allreduce(&wrong, &all_wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Finalize();
  return all_wrong == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace
}  // namespace redblue::test

int main(int argc, char** argv) { return redblue::test::all_of(argc, argv); }
