#include "redblue/ranks/execute.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <limits>
#include <thread>
#include <utility>

#include "redblue/language/word_type.hpp"
#include "redblue/planner/shapes.hpp"
#include "redblue/problem/options.hpp"
#include "redblue/ranks/agree.hpp"
#include "redblue/ranks/channel.hpp"
#include "redblue/ranks/message.hpp"
#include "redblue/ranks/parts.hpp"
#include "redblue/ranks/rows_of_tiles.hpp"
#include "redblue/ranks/tile_memory.hpp"
#include "redblue/runtime/partial.hpp"
#include "redblue/runtime/storage_of.hpp"

namespace redblue::ranks {
namespace {

using Clock = std::chrono::steady_clock;

std::array<index_t, 4> heads_only(const Problem& p) { return {1, p.heads, 1, 1}; }

/// What must be the same on all ranks.
std::string asked_text(const World& world, const Tensors& tensors, const How& how) {
  const Layout& l = world.layout();
  std::string text = fmt::format("{} {} {} {} {} {} {} {} {} {}", name_of(world.problem().op), l.head_groups,
                                 l.grid_rows, l.grid_cols, name_of(l.transfer), name_of(l.ownership), l.block,
                                 l.reproducible, l.keeps_heads, name_of(how.compute));
  const Problem& p = world.problem();
  option::for_each(problem_options(), [&](const auto& option) {
    const auto& value = option.of(p);
    using Value = std::remove_cvref_t<decltype(value)>;
    if constexpr (std::is_arithmetic_v<Value>)
      text += fmt::format(" {}={}", option.name, value);
    else if constexpr (std::remove_cvref_t<decltype(option)>::kOptional &&
                       std::is_arithmetic_v<typename std::remove_cvref_t<decltype(option)>::Number>)
      text += value ? fmt::format(" {}={}", option.name, *value) : "";
  });
  for (const index_t s : p.cu_seqlens_q) text += fmt::format(" {}", s);
  for (const index_t s : p.cu_seqlens_k) text += fmt::format(" {}", s);
  for (const SlowArray a : facts_of(p.op).reads) text += fmt::format(" {}", name_of(tensors[a].dtype));
  for (const SlowArray a : {SlowArray::slopes, SlowArray::sinks})
    if (tensors[a].data != nullptr && tensors[a].shape == heads_only(p))
      for (const double word : words_of_heads(tensors[a])) text += fmt::format(" {}", word);
  return text;
}

std::string shape_text(const std::array<index_t, 4>& s) {
  return fmt::format("[{}, {}, {}, {}]", s[0], s[1], s[2], s[3]);
}

void require_tensor(const World& w, int rank, SlowArray a, const Tensor& t, bool needed) {
  const Side side = side_of(a);
  const std::array<index_t, 4> shape{w.problem().batch, w.all_heads(side).size(), w.rows_of(side, rank).count(),
                                     cols_of(w.problem(), a)};
  if (t.data == nullptr && (!needed || shape[2] == 0)) return;
  if (t.data == nullptr)
    throw InvalidProblem(
        fmt::format("{} is missing on rank {}: it has {} rows at home", tensor_name(a), rank, shape[2]));
  if (t.dtype == DType::int8)
    throw Unsupported(fmt::format("{} is int8 on rank {}: ranks do not send scales; multiply it by them first",
                                  tensor_name(a), rank));
  if (t.shape != shape)
    throw InvalidProblem(fmt::format("{} is {} on rank {}, and its rows at home are {}", tensor_name(a),
                                     shape_text(t.shape), rank, shape_text(shape)));
}

/// Is there room for what is kept, and does a gradient find there what its forward pass left?
void require_kept(const World& w, int rank, const Tensors& tensors, const Kept* kept) {
  if (w.layout().keeps_heads != (kept != nullptr))
    throw InvalidProblem(kept == nullptr
                             ? "keeps_heads without How::kept: give one, which forward pass and gradient share"
                             : "How::kept without keeps_heads: ask for that in the layout, too");
  if (kept == nullptr || is_forward(w.problem().op)) return;
  for (const SlowArray a : {SlowArray::Q, SlowArray::K, SlowArray::V}) {
    const Side side = side_of(a);
    const std::array<index_t, 4> shape{w.problem().batch, w.heads_of(side, w.group_of(rank)).size(),
                                       w.rows_of_place(side, w.place_of(rank)).count(), cols_of(w.problem(), a)};
    const Tensor* const t = kept->find(a);
    if (t == nullptr)
      throw InvalidProblem(fmt::format("no forward pass has kept {} on rank {}: run it over the same layout first",
                                       tensor_name(a), rank));
    if (t->shape != shape || t->dtype != tensors[a].dtype)
      throw InvalidProblem(fmt::format(
          "{} was kept as {} of {} on rank {}, and its gradient wants {} of {}: give what "
          "the forward pass of these arrays has kept",
          tensor_name(a), shape_text(t->shape), name_of(t->dtype), rank, shape_text(shape), name_of(tensors[a].dtype)));
  }
}

void require(const World& w, const Transport& transport, const Tensors& tensors, const How& how) {
  if (transport.ranks() != w.ranks())
    throw InvalidProblem(fmt::format("{} ranks for a layout of {} x {} x {}: give one that has as many",
                                     transport.ranks(), w.layout().head_groups, w.layout().grid_rows,
                                     w.layout().grid_cols));
  if (how.compute != DType::f32 && how.compute != DType::f64 && how.compute != DType::bf16)
    throw Unsupported(fmt::format("compute type {}: f32, f64 and bf16 are there", name_of(how.compute)));
  if (how.look_ahead < 1) throw InvalidProblem(fmt::format("look_ahead = {}: give 1 or more", how.look_ahead));
  if (w.layout().reproducible > 0 && (how.plan.M > 0 || how.plan.memory))
    throw InvalidProblem(
        fmt::format("M = {} with reproducible results: their tiles are the same for every fast memory; leave it out",
                    how.plan.M.str()));
  const Problem& p = w.problem();
  require_no_more(p, tensors);
  require_kept(w, transport.rank(), tensors, how.kept);
  for (const SlowArray a : facts_of(p.op).reads)  // dlse is for problems that ranks do not share
    if (!is_of_modifiers(a) && a != SlowArray::dlse) require_tensor(w, transport.rank(), a, tensors[a], true);
  for (const SlowArray a : facts_of(p.op).writes)
    if (!is_of_modifiers(a)) require_tensor(w, transport.rank(), a, tensors[a], a != SlowArray::lse);
  if (p.bias) {
    std::array<index_t, 4> shape = *p.bias;
    if (shape[2] != 1) shape[2] = w.queries_of(transport.rank()).count();
    for (const auto& [asked, a] : {std::pair{true, SlowArray::bias}, {p.bias_gradient, SlowArray::dBias}})
      if (const Tensor& t = tensors[a]; asked && shape[2] > 0 && (t.data == nullptr || t.shape != shape))
        throw InvalidProblem(fmt::format("{} is {} on rank {}: its rows at home are {}", tensor_name(a),
                                         shape_text(t.shape), transport.rank(), shape_text(shape)));
  }
  for (const auto& [asked, a] : {std::pair{p.alibi, SlowArray::slopes},
                                 {p.sinks && (is_forward(p.op) || p.sinks_gradient), SlowArray::sinks},
                                 {p.sinks_gradient, SlowArray::dSinks}}) {
    if (asked && (tensors[a].data == nullptr || tensors[a].shape != heads_only(p)))
      throw InvalidProblem(fmt::format("{} has shape {} on every rank", tensor_name(a), shape_text(heads_only(p))));
  }
}

/// One rank at its steps.
class Executor {
 public:
  Executor(const World& world, const Program& program, Transport& transport, const Tensors& home, const How& how)
      : world_(world),
        program_(program),
        transport_(transport),
        home_(home),
        how_(how),
        plan_(options_of_part(world, how.plan)),
        memory_(world, program, home, how.kept, word_of(how.compute)) {}

  Ran run() {
    const auto began = Clock::now();
    for (std::size_t k = 0; k < program_.steps.size(); ++k) {
      expect(k);
      memory_.begin_step(k);
      step(k, program_.steps[k]);
      memory_.end_step(k);
      std::erase_if(leaving_, [&](OfStep& m) { return m.message.wait(std::chrono::milliseconds(0)) && left(m); });
    }
    for (OfStep& m : leaving_) wait(m);
    memory_.finish();
    ran_.held_bytes = memory_.most_bytes();
    ran_.took = Clock::now() - began;
    return ran_;
  }

 private:
  struct OfStep {
    std::size_t step;
    Message message;
    std::size_t size() const { return message.size(); }
  };

  /// Asks for the messages that come next, so that they travel while this rank works.
  void expect(std::size_t step) {
    next_ = std::max(next_, step);
    while (coming_.size() < static_cast<std::size_t>(how_.look_ahead) && next_ < program_.steps.size()) {
      const std::size_t k = next_++;
      const Step& s = program_.steps[k];
      if (s.verb != Verb::receive) continue;
      OfStep& m = coming_.emplace_back(k, Message(std::vector<std::byte>(memory_.bytes_of(s.pieces))));
      stage(m.size());
      m.message.receive(transport_, s.peer, channel_of(s.cargo));
    }
  }

  void stage(std::size_t bytes) {
    staged_ += bytes;
    ran_.staging_bytes = std::max(ran_.staging_bytes, Words(static_cast<index_t>(staged_)));
  }
  bool left(const OfStep& m) {
    staged_ -= m.size();
    return true;
  }

  /// Rank, step, verb and peer.
  std::string text_of(const OfStep& m) const {
    const Step& s = program_.steps[m.step];
    return fmt::format("rank {}: step {}, {} {} bytes of {} {} rank {}", transport_.rank(), m.step, name_of(s.verb),
                       m.size(), name_of(s.cargo), s.verb == Verb::send ? "to" : "from", s.peer);
  }
  void wait(OfStep& m) {
    const auto began = Clock::now();
    bool done = false;
    try {
      done = m.message.wait(how_.patience);
    } catch (const RankError& e) {
      throw RankError(fmt::format("{} ({})", e.what(), text_of(m)));
    }
    if (!done)
      throw RankError(fmt::format("{}, is not done after {} ms: is that rank alive, and was it asked for the same?",
                                  text_of(m), how_.patience.count()));
    ran_.waited += Clock::now() - began;
  }

  void step(std::size_t k, const Step& s) {
    if (how_.messages_alone && s.verb != Verb::send && s.verb != Verb::receive) return;
    switch (s.verb) {
      case Verb::clear:
        for (const int t : s.tiles) clear(t);
        return;
      case Verb::copy:
        for (std::size_t i = 0; i < s.pieces.size(); i += 2) copy(s.pieces[i], s.pieces[i + 1]);
        return;
      case Verb::send:
        return send(k, s);
      case Verb::receive:
        return receive(s);
      case Verb::attend:
        return attend(s);
      case Verb::merge:
        return merge(s.pieces);
      case Verb::sink:
        return sink(s.tiles);
      case Verb::products:
        return row_products(memory_.tensor(s.tiles[0]), memory_.tensor(s.tiles[1]), memory_.tensor(s.tiles[2]));
      case Verb::stand_in:
        return stand_in(memory_.tensor(s.tiles[0]), memory_.tensor(s.tiles[1]), memory_.tensor(s.tiles[2]));
      case Verb::gradient:
        return gradient(s);
      case Verb::sinks:
        return add_sink_gradients(home_[SlowArray::sinks], memory_.tensor(s.tiles[0]), memory_.tensor(s.tiles[1]),
                                  memory_.tensor(s.tiles[2]));
      case Verb::add:
        for (std::size_t i = 0; i < s.pieces.size(); i += 2) {
          const std::vector<Tensor> x = memory_.tensors(s.pieces[i]), into = memory_.tensors(s.pieces[i + 1]);
          for (std::size_t j = 0; j < x.size(); ++j) add(x[j], into[j]);
        }
        return;
    }
  }

  const Tile& tile(int t) const { return program_.tiles[static_cast<std::size_t>(t)]; }
  Tensor tensor(const Piece& p, Range rows) const { return memory_.tensor(p.tile, rows, p.heads); }
  Tensor tensor(int t, Range rows) const { return memory_.tensor(t, rows, tile(t).heads); }

  void clear(int t) {
    fill(memory_.tensor(t), tile(t).array == SlowArray::lse ? -std::numeric_limits<double>::infinity() : 0);
  }

  void copy(const Piece& from, const Piece& to) {
    std::vector<std::byte> bytes(memory_.bytes_of({from}));
    memory_.pack({from}, bytes.data());
    memory_.unpack({to}, bytes.data());
  }

  void send(std::size_t k, const Step& s) {
    OfStep& m = leaving_.emplace_back(k, Message(std::vector<std::byte>(memory_.bytes_of(s.pieces))));
    stage(m.size());
    memory_.pack(s.pieces, m.message.bytes().data());
    crossed(ran_.crossed.sent, ran_.bytes_sent, s, m.size());
    m.message.send(transport_, s.peer, channel_of(s.cargo));
  }
  void receive(const Step& s) {
    OfStep& m = coming_.front();
    wait(m);
    memory_.unpack(s.pieces, m.message.bytes().data());
    crossed(ran_.crossed.received, ran_.bytes_received, s, m.size());
    left(m);
    coming_.pop_front();
  }
  void crossed(Traffic& traffic, Words& bytes, const Step& s, std::size_t size) {
    note(traffic, world_, program_, s);
    bytes += static_cast<index_t>(size);
  }

  RunOptions options(DType compute) const {
    RunOptions o;
    o.compute = compute;
    o.threads = how_.threads;
    o.pool = how_.pool;
    o.progress = [this](double) {
      if (std::this_thread::get_id() == thread_) transport_.progress();
    };
    return o;
  }
  Tensor slopes(Range heads) const {
    Tensor t = home_[SlowArray::slopes];
    if (!world_.problem().alibi) return {};
    t.data = static_cast<std::byte*>(t.data) + heads.begin * t.strides[1] * static_cast<index_t>(size_of(t.dtype));
    t.shape[1] = heads.size();
    return t;
  }

  Problem problem_of(const Part& part, const std::vector<int>& tiles) const {
    return problem_of_part(part, tile(tiles[0]).heads, tile(tiles[1]).heads);
  }

  /// A gradient that nobody wants.
  Tensor zeros(std::vector<std::byte>& memory, Range heads, Range rows, index_t cols) const {
    const DType type = word_of(how_.compute);
    const std::array<index_t, 4> shape{world_.problem().batch, heads.size(), rows.size(), cols};
    memory.assign(static_cast<std::size_t>(shape[0] * shape[1] * shape[2] * shape[3]) * size_of(type), std::byte{0});
    return {memory.data(), type, shape};
  }

  /// The words for these pairs of the tile that holds a bias, or its gradient; none where there is no such tile.
  Tensor of_pairs(SlowArray a, const std::vector<int>& tiles, const Part& part) const {
    const auto found = std::ranges::find_if(tiles, [&](int t) { return t >= 0 && tile(t).array == a; });
    if (found == tiles.end()) return {};
    const auto& [batches, heads, rows, cols] = *world_.problem().bias;
    constexpr Range kOne{0, 1};
    return memory_.tensor(*found, rows == 1 ? kOne : part.queries, heads == 1 ? kOne : tile(tiles[0]).heads,
                          cols == 1 ? kOne : part.keys);
  }

  void attend(const Step& s) {
    const std::vector<int>& t = s.tiles;
    for_parts(world_, s.queries, s.keys, [&](const Part& part) {
      const Range q = part.queries, k = part.keys;
      const Inputs in{.q = tensor(t[0], q),
                      .k = tensor(t[1], k),
                      .v = tensor(t[2], k),
                      .bias = of_pairs(SlowArray::bias, t, part),
                      .slopes = slopes(tile(t[0]).heads)};
      const Outputs into{.o = tensor(t[3], q), .lse = tensor(t[4], q)};
      ran_.io += attention_partial(in, into, problem_of(part, t), plan_, options(how_.compute)).io.total();
    });
  }
  void gradient(const Step& s) {
    const std::vector<int>& t = s.tiles;
    std::vector<std::byte> unwanted[3];
    const auto result = [&](std::size_t i, Range rows) {
      if (t[i] >= 0) return tensor(t[i], rows);
      return zeros(unwanted[i - 6], tile(t[i == 6 ? 0 : 1]).heads, rows,
                   i == 8 ? world_.problem().d_v : world_.problem().d);
    };
    for_parts(world_, s.queries, s.keys, [&](const Part& part) {
      const Range q = part.queries, k = part.keys;
      const BackwardInputs in{.q = tensor(t[0], q),
                              .k = tensor(t[1], k),
                              .v = tensor(t[2], k),
                              .dO = tensor(t[3], q),
                              .o = tensor(t[4], q),
                              .lse = tensor(t[5], q),
                              .bias = of_pairs(SlowArray::bias, t, part),
                              .slopes = slopes(tile(t[0]).heads)};
      const BackwardOutputs into{.dq = result(6, q), .dk = result(7, k), .dv = result(8, k)};
      if (part.problem.bias_gradient)
        return gradient_with_bias(in, into, of_pairs(SlowArray::dBias, t, part), problem_of(part, t));
      ran_.io += attention_partial(in, into, problem_of(part, t), plan_, options(how_.compute)).io.total();
    });
  }

  /// Gradients of a bias are not added to: a part makes gradients of its own, and all are added here.
  void gradient_with_bias(const BackwardInputs& in, const BackwardOutputs& into, const Tensor& dBias, Problem p) {
    p.accumulate = false;
    const DType word = word_of(how_.compute);
    std::vector<std::vector<std::byte>> memory;
    const auto fresh = [&](const Tensor& like) {
      const auto& [batch, heads, rows, cols] = like.shape;
      memory.emplace_back(static_cast<std::size_t>(batch * heads * rows * cols) * size_of(word));
      return Tensor(memory.back().data(), word, like.shape);
    };
    const BackwardOutputs own{.dq = fresh(into.dq), .dk = fresh(into.dk), .dv = fresh(into.dv), .dbias = fresh(dBias)};
    const RunOptions with = options(how_.compute);
    ran_.io += redblue::run(plan_of_part(p, plan_, with, in.q.dtype), in, own, with).io.total();
    for (const auto& [x, to] :
         {std::pair{&own.dq, &into.dq}, {&own.dk, &into.dk}, {&own.dv, &into.dv}, {&own.dbias, &dBias}})
      add(*x, *to);
  }

  void merge(const std::vector<Piece>& p) {
    for (const Range& rows : p[0].rows.ranges())
      ran_.io += redblue::merge({tensor(p[0], rows), tensor(p[2], rows)}, {tensor(p[1], rows), tensor(p[3], rows)}, {},
                                options(word_of(how_.compute)))
                     .io.total();
  }
  void sink(const std::vector<int>& t) {
    SinkState state(home_[SlowArray::sinks], world_.problem(), word_of(how_.compute));
    for (const Range& rows : blocks_of_rows(world_, tile(t[0]).rows)) {
      const Tensor o = tensor(t[0], rows), lse = tensor(t[1], rows);
      ran_.io += redblue::merge({state.o(o.shape), state.lse(lse.shape)}, {o, lse}, {}, options(word_of(how_.compute)))
                     .io.total();
    }
  }

  const World& world_;
  const Program& program_;
  Transport& transport_;
  const Tensors& home_;
  const How& how_;
  const plan::Options plan_;  ///< of parts
  TileMemory memory_;
  std::thread::id thread_ = std::this_thread::get_id();  ///< the only one that calls the transport
  Ran ran_;
  std::deque<OfStep> coming_;
  std::vector<OfStep> leaving_;
  std::size_t next_ = 0, staged_ = 0;
};

}  // namespace

std::optional<double> overlap_of(const Ran& ran, const Ran& alone) {
  const std::chrono::duration<double> could = std::min(alone.waited, ran.took - ran.waited);
  constexpr std::chrono::milliseconds kNoise(1);  // a thread that waits wakes some tenths of that late
  if (could < kNoise) return std::nullopt;
  return std::clamp((alone.waited - ran.waited) / could, 0.0, 1.0);
}

void refuse(Transport& transport, const std::string& why, std::chrono::milliseconds patience) {
  try {
    agree(transport, "", std::make_exception_ptr(Error(why)), patience);
  } catch (const Error&) {  // NOLINT(bugprone-empty-catch): it is the one that the others hear
  }
}

Ran run(const World& world, Transport& transport, const Tensors& tensors, const How& how) {
  std::exception_ptr wrong;
  try {
    require(world, transport, tensors, how);
  } catch (const Error&) {
    wrong = std::current_exception();
  }
  if (how.agree)
    agree(transport, asked_text(world, tensors, how), wrong, how.patience);
  else if (wrong != nullptr)
    std::rethrow_exception(wrong);
  const Program program = program_of(world, transport.rank());
  try {
    const Ran ran = Executor(world, program, transport, tensors, how).run();
    if (how.agree) agree(transport, "done", nullptr, how.patience);  // none returns before all have what they need
    return ran;
  } catch (const std::exception& e) {
    transport.give_up(e.what());
    throw;
  }
}

}  // namespace redblue::ranks
