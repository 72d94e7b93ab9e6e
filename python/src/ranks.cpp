#include "redblue/ranks.hpp"

#include <fmt/format.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <utility>

#include "module.hpp"
#include "run.hpp"

namespace redblue::python {

namespace {

using ranks::Layout;
using ranks::Transport;
using ranks::World;

/// f() of Python; its errors go on as ours, so that no other thread meets one of Python.
template <class F>
auto with_python(const F& f) {
  const nb::gil_scoped_acquire locked;
  try {
    return f();
  } catch (const nb::python_error& e) {
    if (e.matches(PyExc_KeyboardInterrupt)) {
      nb::python_error(e).restore();
      throw Interrupted();
    }
    const std::string words = nb::cast<std::string>(nb::str(e.value()));
    const std::string type = nb::cast<std::string>(nb::str(e.type().attr("__name__")));
    // An error of redblue's own communicators says what another rank said.
    throw ranks::RankError(type == "Error" ? words : fmt::format("the communicator failed: {}: {}", type, words));
  }
}

/// A Python object carries the messages: rank, ranks, send(to, channel, memory), receive(from, channel, memory) and
/// give_up(why), and maybe progress(). What send and receive return has wait(seconds), which says whether the message
/// is no longer pending.
class PythonTransport final : public Transport {
 public:
  explicit PythonTransport(nb::handle comm)
      : comm_(nb::borrow(comm)),
        rank_(nb::cast<int>(comm.attr("rank"))),
        ranks_(nb::cast<int>(comm.attr("ranks"))),
        progress_(nb::getattr(comm, "progress", nb::none())) {}

  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }
  std::unique_ptr<Pending> send(int to, int channel, std::span<const std::byte> message) override {
    auto* const data = const_cast<std::byte*>(message.data());
    return ask("send", to, channel, {data, message.size()});
  }
  std::unique_ptr<Pending> receive(int from, int channel, std::span<std::byte> message) override {
    return ask("receive", from, channel, message);
  }
  void progress() override {
    watch_(0);
    if (progress_.is_none() || Clock::now() < next_) return;
    with_python([&] { progress_(); });
    next_ = Clock::now() + kEvery;
  }
  void keep(std::vector<std::byte> bytes) override {  // for ever: the communicator outlives this
    auto kept = std::make_unique<std::vector<std::byte>>(std::move(bytes));
    [[maybe_unused]] auto* const for_ever = kept.release();
  }
  void give_up(std::string_view why) override {
    const nb::gil_scoped_acquire locked;
    try {
      comm_.attr("give_up")(nb::str(why.data(), why.size()));
    } catch (const nb::python_error&) {  // there is an error already, and that is the one to tell
    }
  }

 private:
  class Waiting final : public Pending {
   public:
    explicit Waiting(nb::object request) : request_(std::move(request)) {}
    ~Waiting() override {
      const nb::gil_scoped_acquire locked;
      request_.reset();
    }
    bool wait(std::chrono::milliseconds at_most) override {
      return with_python([&] {
        const double seconds = std::chrono::duration<double>(at_most).count();
        return nb::cast<bool>(request_.attr("wait")(seconds));
      });
    }

   private:
    nb::object request_;
  };

  std::unique_ptr<Pending> ask(const char* what, int peer, int channel, std::span<std::byte> message) {
    return with_python([&] {
      const nb::object memory = nb::steal(PyMemoryView_FromMemory(
          reinterpret_cast<char*>(message.data()), static_cast<Py_ssize_t>(message.size()), PyBUF_WRITE));
      return std::make_unique<Waiting>(comm_.attr(what)(peer, channel, memory));
    });
  }

  using Clock = std::chrono::steady_clock;
  static constexpr auto kEvery = std::chrono::milliseconds(1);

  nb::object comm_;
  int rank_, ranks_;
  nb::object progress_;
  Clock::time_point next_ = Clock::now();
  std::function<void(double)> watch_ = signal_watch();
};

template <class Name>
Name named(const char* what, const std::string& name, std::optional<Name> found, std::string_view choices) {
  if (!found) throw InvalidProblem(fmt::format("{} = '{}': give {}", what, name, choices));
  return *found;
}

Layout layout_of(int head_groups, int grid_rows, int grid_cols, const std::string& transfer,
                 const std::string& ownership, index_t block, index_t reproducible, bool keeps_heads) {
  return {.head_groups = head_groups,
          .grid_rows = grid_rows,
          .grid_cols = grid_cols,
          .transfer = named("transfer", transfer, from_name<ranks::Transfer>(transfer), "exchange, gather or ring"),
          .ownership = named("ownership", ownership, from_name<ranks::Ownership>(ownership),
                             "contiguous, zig-zag, block-cyclic or documents"),
          .block = block,
          .reproducible = reproducible,
          .keeps_heads = keeps_heads};
}

nb::dict described(const ranks::Traffic& t) {
  nb::dict d;
  d["inputs"] = integer_of(t.inputs);
  d["partials"] = integer_of(t.partials);
  d["messages"] = integer_of(t.messages);
  return d;
}

nb::dict described(const World& w, int rank, index_t M) {
  const ranks::Program program = program_of(w, rank);
  const ranks::RankCount c = count(w, program);
  nb::dict d;
  d["received"] = described(c.received);
  d["sent"] = described(c.sent);
  d["pairs"] = integer_of(c.pairs);
  d["held"] = integer_of(c.held);
  if (M > 0) d["io"] = integer_of(local_io(w, program, M));
  return d;
}

nb::dict described(const ranks::LocalWork& local) {
  nb::dict d, tiling;
  d["rank"] = local.rank;
  d["pairs"] = integer_of(local.pairs);
  d["io"] = integer_of(local.io);
  d["bound"] = integer_of(local.bound.words);
  d["ratio"] = local.ratio ? nb::object(nb::float_(*local.ratio)) : nb::none();
  d["schedule"] = std::string(local.schedule);
  for (const schedule::TileSize& t : local.tiling) tiling[std::string(t.name).c_str()] = t.value;
  d["tiling"] = tiling;
  return d;
}

std::chrono::milliseconds patience_of(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(std::min(seconds, 1e9) * 1000));
}

void refuse_ranks(nb::handle comm, const std::string& why, double patience) {
  PythonTransport transport(comm);
  unlocked([&] { ranks::refuse(transport, why, patience_of(patience)); });
}

nb::dict run_over_ranks(const World& world, nb::handle comm, nb::handle arrays, bool tokens_first, const Wanted& wanted,
                        double patience, ranks::Kept* kept) {
  PythonTransport transport(comm);
  Buffers buffers;
  Tensors tensors;
  try {
    tensors = tensors_in(arrays, world.problem(), tokens_first, buffers);
  } catch (const std::exception& e) {
    unlocked([&] { ranks::refuse(transport, e.what(), patience_of(patience)); });
    throw;
  }
  ranks::How how;
  how.compute = wanted.compute;
  how.pool = &pool_of(wanted.threads);
  how.plan.M = wanted.M.value_or(0);
  how.patience = patience_of(patience);
  how.kept = kept;
  const ranks::Ran ran = unlocked([&] { return run(world, transport, tensors, how); });
  nb::dict d;
  d["received"] = described(ran.crossed.received);
  d["sent"] = described(ran.crossed.sent);
  d["bytes_received"] = integer_of(ran.bytes_received);
  d["bytes_sent"] = integer_of(ran.bytes_sent);
  d["io"] = integer_of(ran.io);
  d["held_bytes"] = integer_of(ran.held_bytes);
  d["staging_bytes"] = integer_of(ran.staging_bytes);
  d["seconds"] = std::chrono::duration<double>(ran.took).count();
  d["waited"] = std::chrono::duration<double>(ran.waited).count();
  return d;
}

/// The rows of a plan for ranks, the chosen one first, and why.
nb::tuple planned(const Problem& problem, int number, const std::string& transfer, const std::string& ownership,
                  index_t block, index_t input_bytes, index_t partial_bytes, index_t M, index_t reproducible,
                  bool keeps_heads) {
  ranks::Wanted wanted{.ranks = number, .widths = {input_bytes, partial_bytes}};
  wanted.M = M;
  wanted.reproducible = reproducible;
  wanted.keeps_heads = keeps_heads;
  if (!transfer.empty())
    wanted.transfer = named("transfer", transfer, from_name<ranks::Transfer>(transfer), "exchange, gather or ring");
  if (!ownership.empty())
    wanted.ownership = named("ownership", ownership, from_name<ranks::Ownership>(ownership),
                             "contiguous, zig-zag, block-cyclic or documents");
  wanted.block = block;
  const ranks::LayoutPlan plan = plan_layout(problem, wanted);
  nb::list rows;
  for (const ranks::LayoutRow& row : plan.rows) {
    const Layout& l = row.cost.layout;
    nb::dict d;
    d["name"] = row.name;
    d["layout"] = nb::make_tuple(l.head_groups, l.grid_rows, l.grid_cols, std::string(name_of(l.transfer)),
                                 std::string(name_of(l.ownership)), l.block, l.reproducible, l.keeps_heads);
    d["words"] = integer_of(row.cost.words);
    d["bytes"] = integer_of(row.cost.bytes);
    d["messages"] = integer_of(row.cost.messages);
    d["balance"] = row.cost.balance;
    d["bound"] = integer_of(row.bound.words);
    d["ratio"] = row.ratio ? nb::object(nb::float_(*row.ratio)) : nb::none();
    if (row.local) d["local"] = described(*row.local);
    rows.append(d);
  }
  return nb::make_tuple(rows, plan.reason);
}

int checked_rank(const World& w, int rank) {
  if (rank < 0 || rank >= w.ranks()) throw InvalidProblem(fmt::format("rank = {} of {}", rank, w.ranks()));
  return rank;
}

}  // namespace

void add_ranks(nb::module_& m) {
  nb::class_<ranks::Kept>(m, "Kept",
                          "What a forward pass over ranks leaves on a rank for its gradient, where heads are kept.")
      .def(nb::init<>());
  nb::class_<World>(m, "World", "A problem whose rows are at home on ranks.")
      .def(
          "__init__",
          [](World* w, const Problem& p, int head_groups, int grid_rows, int grid_cols, const std::string& transfer,
             const std::string& ownership, index_t block, index_t reproducible, bool keeps_heads) {
            new (w) World(
                p, layout_of(head_groups, grid_rows, grid_cols, transfer, ownership, block, reproducible, keeps_heads));
          },
          nb::arg("problem"), nb::arg("head_groups"), nb::arg("grid_rows"), nb::arg("grid_cols"), nb::arg("transfer"),
          nb::arg("ownership"), nb::arg("block"), nb::arg("reproducible"), nb::arg("keeps_heads"))
      .def_prop_ro("ranks", &World::ranks)
      .def(
          "rows",
          [](const World& w, int rank, bool queries) {
            nb::list ranges;
            const Side side = queries ? Side::queries : Side::keys;
            for (const Range& r : w.rows_of(side, checked_rank(w, rank)).ranges())
              ranges.append(nb::make_tuple(r.begin, r.end));
            return ranges;
          },
          nb::arg("rank"), nb::arg("queries"), "Ranges of positions that the rank has at home.")
      .def(
          "count", [](const World& w, int rank, index_t M) { return described(w, checked_rank(w, rank), M); },
          nb::arg("rank"), nb::arg("M"),
          "Words on the network and in memory of a rank, by walking through its steps; M: words of fast memory, or 0.");
  m.def("plan_ranks", &planned, nb::arg("problem"), nb::arg("ranks"), nb::arg("transfer"), nb::arg("ownership"),
        nb::arg("block"), nb::arg("input_bytes"), nb::arg("partial_bytes"), nb::arg("M"), nb::arg("reproducible"),
        nb::arg("keeps_heads"), "Layouts for a problem, the best first.");
  m.def("refuse_ranks", &refuse_ranks, nb::arg("comm"), nb::arg("why"), nb::arg("patience"),
        "Tells the other ranks of `comm` that this one cannot run.");
  m.def("run_ranks", &run_over_ranks, nb::arg("world"), nb::arg("comm"), nb::arg("arrays"), nb::arg("tokens_first"),
        nb::arg("wanted"), nb::arg("patience"), nb::arg("kept").none(), "Attention over ranks, on the rank of `comm`.");
}

}  // namespace redblue::python
