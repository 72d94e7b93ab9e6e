#include <fmt/format.h>

#include <array>
#include <chrono>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>

#include "redblue/c_api/callers_pool.hpp"
#include "redblue/c_api/calls.hpp"
#include "redblue/c_api/structs.hpp"
#include "redblue/c_api/tensors.hpp"
#include "redblue/ranks/agree.hpp"
#include "redblue/ranks/mpi/transport.hpp"

/// Attention over ranks from C: redblue_mpi.h in terms of mpi.hpp.
struct redblue_kept {
  redblue::ranks::Kept heads;
};

namespace redblue::c_api {
namespace {

template <class Kinds>
auto kind_from_c(std::int32_t number, const Kinds& kinds, const char* what) {
  if (number < 0 || number >= std::ssize(kinds))
    throw InvalidArgument(fmt::format("{} = {} is no redblue_{}", what, number, what));
  return kinds[static_cast<std::size_t>(number)];
}

ranks::Layout layout_from_c(const redblue_layout& l) {
  using ranks::Ownership;
  using ranks::Transfer;
  constexpr std::array kTransfers{Transfer::exchange, Transfer::gather, Transfer::ring};
  constexpr std::array kOwnerships{Ownership::contiguous, Ownership::zig_zag, Ownership::block_cyclic,
                                   Ownership::documents};
  return {.head_groups = l.head_groups,
          .grid_rows = l.grid_rows,
          .grid_cols = l.grid_cols,
          .transfer = kind_from_c(l.transfer, kTransfers, "transfer"),
          .ownership = kind_from_c(l.ownership, kOwnerships, "ownership"),
          .block = l.block,
          .reproducible = l.reproducible,
          .keeps_heads = l.keeps_heads != 0};
}

ranks::World world_from_c(const redblue_problem* problem, const redblue_layout* layout) {
  return {problem_of(given(problem)), layout_from_c(given(layout))};
}

/// For the shapes of a rank's tensors.
Problem rows_at_home(const ranks::World& world, int rank) {
  const Problem& all = world.problem();
  Problem own;
  own.op = all.op;
  own.batch = all.batch;
  own.heads = all.heads;
  own.kv_heads = all.kv_heads;
  own.n_q = world.queries_of(rank).count();
  own.n_k = world.keys_of(rank).count();
  own.d = all.d;
  own.d_v = all.d_v;
  own.bias = all.bias;
  if (own.bias && (*own.bias)[2] != 1) (*own.bias)[2] = own.n_q;
  return own;
}

std::chrono::milliseconds patience_of(const redblue_ranks_options& o) {
  if (!(o.patience > 0 && o.patience <= 1e9))
    throw InvalidArgument(fmt::format("patience = {}: give seconds above 0, at most 1e9", o.patience));
  return std::chrono::ceil<std::chrono::milliseconds>(std::chrono::duration<double>(o.patience));
}

/// Everything of a call, and the pool that `how` points to.
struct RankCall {
  ranks::How how;
  std::optional<CallersPool> pool;
  std::optional<ranks::World> world;
  Tensors tensors;

  RankCall() = default;
  RankCall(const RankCall&) = delete;
  RankCall& operator=(const RankCall&) = delete;
  ~RankCall() = default;

  void take(const redblue_ranks_options* options) {
    if (options == nullptr) return;
    const redblue_ranks_options o = given(options);
    how.patience = patience_of(o);
    how.compute = dtype_of_numbers(o.compute, "compute");
    how.threads = threads_of(o.threads);
    if (o.fast_memory_words < 0)
      throw InvalidArgument(fmt::format("fast_memory_words = {}: give a number from 1 on, or 0", o.fast_memory_words));
    how.plan.M = o.fast_memory_words;
    if (o.kept != nullptr) how.kept = &o.kept->heads;
    if (o.pool != nullptr) how.pool = &pool.emplace(checked(o.pool, "redblue_thread_pool"));
  }
  template <class T>
  void take(const redblue_problem* problem, const redblue_layout* layout, Operation op, const T* given_tensors,
            int rank) {
    world.emplace(world_from_c(problem, layout));
    const Operation asked = world->problem().op;
    if (asked != op)
      throw InvalidArgument(fmt::format("this problem is for {}: call redblue_mpi_{} with it", redblue::name_of(asked),
                                        redblue::name_of(asked)));
    const T t = given(given_tensors);
    tensors = tensors_of(rows_at_home(*world, rank % world->ranks()), t);
  }
};

void describe(const ranks::Ran& ran, redblue_ranks_info& info) {
  redblue_ranks_info result = defaults<redblue_ranks_info>();
  result.inputs_received = saturated(ran.crossed.received.inputs);
  result.partials_received = saturated(ran.crossed.received.partials);
  result.messages_received = saturated(ran.crossed.received.messages);
  result.inputs_sent = saturated(ran.crossed.sent.inputs);
  result.partials_sent = saturated(ran.crossed.sent.partials);
  result.messages_sent = saturated(ran.crossed.sent.messages);
  result.bytes_received = saturated(ran.bytes_received);
  result.bytes_sent = saturated(ran.bytes_sent);
  result.words_moved = saturated(ran.io);
  result.held_bytes = saturated(ran.held_bytes);
  result.staging_bytes = saturated(ran.staging_bytes);
  result.seconds = std::chrono::duration<double>(ran.took).count();
  result.seconds_waited = std::chrono::duration<double>(ran.waited).count();
  result.struct_size = info.struct_size;
  std::memcpy(&info, &result, info.struct_size);
}

MPI_Comm communicator_of(std::int64_t comm) {
  ranks::require_mpi();
  const auto handle = static_cast<MPI_Fint>(comm);
  if (handle != comm) throw InvalidArgument(fmt::format("comm = {} is no MPI_Fint: give MPI_Comm_c2f(..)", comm));
  return MPI_Comm_f2c(handle);
}

template <class T>
redblue_status over_ranks(const redblue_problem* problem, const redblue_layout* layout, std::int64_t comm, Operation op,
                          const T* tensors, const redblue_ranks_options* options, redblue_ranks_info* info) {
  return guarded([&] {
    const MPI_Comm own = communicator_of(comm);
    RankCall call;
    std::exception_ptr wrong;
    const auto attempt = [&](const auto& f) {  // what is wrong on this rank alone, others must hear of
      try {
        if (wrong == nullptr) f();
      } catch (...) {
        wrong = std::current_exception();
      }
    };
    attempt([&] { call.take(options); });
    const auto transport = ranks::mpi_transport(own, call.how.patience);
    attempt([&] {
      require_level(call.how);
      if (info != nullptr) checked(info, "redblue_ranks_info");
      call.take(problem, layout, op, tensors, transport->rank());
    });
    if (wrong != nullptr) {
      agree(*transport, "", wrong, call.how.patience);
      std::rethrow_exception(wrong);
    }
    const ranks::Ran ran = run(*call.world, *transport, call.tensors, call.how);
    if (info != nullptr) describe(ran, *info);
  });
}

void require_rank(const ranks::World& world, std::int32_t rank) {
  if (rank < 0 || rank >= world.ranks())
    throw InvalidArgument(fmt::format("rank = {}: give 0 to {}", rank, world.ranks() - 1));
}

void write_positions(const ranks::Rows& rows, std::int64_t* to) {
  if (to == nullptr) return;
  for (const index_t position : rows.positions()) *to++ = position;
}

}  // namespace
}  // namespace redblue::c_api

extern "C" {

using namespace redblue::c_api;

redblue_status redblue_ranks_rows(const redblue_problem* problem, const redblue_layout* layout, int32_t rank,
                                  int64_t* queries, int64_t* keys) {
  return guarded([&] {
    require_pointer(queries, "queries");
    require_pointer(keys, "keys");
    const redblue::ranks::World world = world_from_c(problem, layout);
    require_rank(world, rank);
    *queries = world.queries_of(rank).count();
    *keys = world.keys_of(rank).count();
  });
}

redblue_status redblue_ranks_positions(const redblue_problem* problem, const redblue_layout* layout, int32_t rank,
                                       int64_t* queries, int64_t* keys) {
  return guarded([&] {
    const redblue::ranks::World world = world_from_c(problem, layout);
    require_rank(world, rank);
    write_positions(world.queries_of(rank), queries);
    write_positions(world.keys_of(rank), keys);
  });
}

redblue_status redblue_kept_create(redblue_kept** kept) {
  return guarded([&] {
    require_pointer(kept, "kept");
    *kept = nullptr;
    *kept = new redblue_kept;
  });
}
void redblue_kept_destroy(redblue_kept* kept) { delete kept; }

redblue_status redblue_mpi_forward(const redblue_problem* problem, const redblue_layout* layout, int64_t comm,
                                   const redblue_forward_tensors* tensors, const redblue_ranks_options* options,
                                   redblue_ranks_info* info) {
  return over_ranks(problem, layout, comm, redblue::Operation::forward, tensors, options, info);
}

redblue_status redblue_mpi_backward(const redblue_problem* problem, const redblue_layout* layout, int64_t comm,
                                    const redblue_backward_tensors* tensors, const redblue_ranks_options* options,
                                    redblue_ranks_info* info) {
  return over_ranks(problem, layout, comm, redblue::Operation::backward, tensors, options, info);
}

}  // extern "C"
