#include "options/options.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <cmath>
#include <span>
#include <utility>

#include "files/archive.hpp"
#include "redblue/files/mapped_file.hpp"
#include "redblue/files/npy.hpp"
#include "redblue/language/bytes.hpp"
#include "redblue/language/word_type.hpp"
#include "redblue/planner/fastest.hpp"
#include "redblue/problem/called_elsewhere.hpp"
#include "report/standard_output.hpp"

namespace redblue::cli {

void OperationOptions::add_to(const Command& command, ProblemFlags& flags, std::size_t operations) {
  flags.add(command, "op", fmt::format(": {}", fmt::join(std::span(kOperationNames).first(operations), ", ")));
  flags.add(command, "score");
  flags.add(command, "sources", ": distinct, shared (A2 = A3), self (all three)");
  command
      .option(
          "--approximate", approximate,
          "DEGREE:RANGE: a polynomial of this degree in place of e^z, for scores |z| <= RANGE: 2:1.0; forward, "
          "backward. Its coefficients are the nearest (minimax), with ,taylor or ,chebyshev those of these series: "
          "4:1,taylor. With ,rows a polynomial for the radius of each row, rows beyond the range exact; more of these: "
          "centred, exact-keys=H, cluster=N[,seed=N], gaussian, no-exact-rows: 2:3,centred,exact-keys=16. Forward "
          "only: linear, "
          "performer:FEATURES[,seed=N], linformer:RANK[,signs][,seed=N], nystroem:LANDMARKS[,iterations=N], "
          "smyrf[:rounds=N,cluster=N,seed=N], hyper[:block=N,samples=N,planes=N,seed=N], "
          "reformer[:rounds=N,chunk=N,buckets=N,seed=N], "
          "coreset:block=KEYS,rank=KEYS[,tau=balanced][,carried][,seed=N], sample:KEYS[,seed=N]")
      .type_name("METHOD");
}

void OperationOptions::apply_to(Problem& p, const ProblemFlags& flags) const {
  flags.apply_to(p);
  if (approximate) p.approximate(*approximate);
}

void MaskOptions::add_to(const Command& command, ProblemFlags& flags) {
  flags.add(command, "causal");
  command.option(
      "--causal-offset", causal_offset,
      "offset of --causal, --window and --alibi: a number, bottom-right (n_k - n_q, the default: the last query sees "
      "the last key) or top-left (0)");
  command.option(
      "--window", window,
      "LEFT,RIGHT: query i sees keys i + offset - LEFT <= j <= i + offset + RIGHT; -1: no edge on that side");
  flags.add(command, "prefix");
  sequences.add_to(command);
  pattern.add_to(command);
}

void SequenceOptions::add_to(const Command& command) {
  command
      .option("--seqlens", seqlens,
              "packed sequences: the number of queries and keys of each, as a list (512,300,212) or a text file; a "
              "sequence sees only itself")
      .type_name("LIST|FILE");
  command.option("--seqlens-k", seqlens_k, "with --seqlens: the number of keys of each, where it is another")
      .type_name("LIST|FILE");
  command
      .option(
          "--seqused-k", seqused_k,
          "padding: the number of keys of each batch, or with --seqlens of each sequence, as a list or a text file; "
          "the keys after them are hidden")
      .type_name("LIST|FILE");
  command
      .option(
          "--seqused-q", seqused_q,
          "padding: the number of queries of each batch, or with --seqlens of each sequence; those after them see no "
          "key")
      .type_name("LIST|FILE");
}

namespace {

/// Lengths of sequences: "512,300,212", or the name of a file with such numbers, apart by commas or blanks.
std::vector<index_t> parse_lengths(std::string_view option, const std::string& given) {
  std::string text = given;
  const bool in_file = given.find_first_not_of("0123456789, -") != std::string::npos;
  if (in_file) try {
      const file::MappedFile file(given);
      text.assign(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
    } catch (const IoError& e) {
      throw InvalidProblem(
          fmt::format("{} {}: this is no list of lengths such as 512,300,212, and no text file of them: {}", option,
                      readable(given), e.what()));
    }
  const std::string where = fmt::format("{} {}", option, given);
  if (text.starts_with("\x93NUMPY") || text.starts_with("PK\x03\x04"))
    throw InvalidProblem(fmt::format("{}: this is a file of NumPy; give lengths as text, such as 512,300,212", where));
  constexpr std::string_view kBlanks = " \t\r\n";
  if (text.find_first_not_of(kBlanks) == std::string::npos)
    throw InvalidProblem(fmt::format("{}: it has no lengths; give such as 512,300,212", where));
  std::vector<index_t> list;
  for (std::size_t from = 0; from <= text.size();) {
    const std::size_t comma = std::min(text.find(',', from), text.size()), before = list.size();
    for (std::size_t at = text.find_first_not_of(kBlanks, from); at < comma;) {
      const std::size_t end = std::min(text.find_first_of(kBlanks, at), comma);
      const std::string word = readable(text.substr(at, std::min<std::size_t>(end - at, 20)));
      const std::string wrong = not_decimal(word);
      if (!wrong.empty() || word[0] == '-')
        throw InvalidProblem(fmt::format("{}: {}: give numbers from 0 on, such as 512,300,212", where,
                                         wrong.empty() ? "'" + word + "' is no length" : wrong));
      list.push_back(std::stoll(word));
      at = text.find_first_not_of(kBlanks, end);
    }
    if (list.size() == before)
      throw InvalidProblem(fmt::format("{}: a comma has no length {} it: give such as 512,300,212", where,
                                       comma < text.size() ? "before" : "after"));
    from = comma + 1;
  }
  return list;
}

std::vector<index_t> cumulative(const std::vector<index_t>& lengths) {
  std::vector<index_t> ends{0};
  ends.reserve(lengths.size() + 1);
  for (const index_t length : lengths)
    if (__builtin_add_overflow(ends.back(), length, &ends.emplace_back()))
      throw InvalidProblem("the lengths of sequences add up to more than 2^63");
  return ends;
}

/// A whole number, or nothing.
std::optional<index_t> whole_number(std::string_view text) {
  index_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

void SequenceOptions::apply_to(Problem& p) const {
  if (seqlens_k && !seqlens) throw InvalidProblem("--seqlens-k is for --seqlens: give that, too");
  if (seqlens) p.cu_seqlens_q = cumulative(parse_lengths("--seqlens", *seqlens));
  if (seqlens) p.cu_seqlens_k = seqlens_k ? cumulative(parse_lengths("--seqlens-k", *seqlens_k)) : p.cu_seqlens_q;
  if (seqused_q) p.seqused_q = parse_lengths("--seqused-q", *seqused_q);
  if (seqused_k) p.seqused_k = parse_lengths("--seqused-k", *seqused_k);
}

void MaskOptions::apply_to(Problem& p, const ProblemFlags& flags) const {
  if (flags.given("seed") && p.dropout == 0)
    throw InvalidProblem(fmt::format("--seed {} is for --dropout: give that, too", p.seed));
  sequences.apply_to(p);
  if (window) {
    const auto comma = window->find(',');
    const auto left = whole_number(window->substr(0, comma)),
               right = comma == std::string::npos ? std::nullopt : whole_number(window->substr(comma + 1));
    if (!left || !right || *left < -1 || *right < -1)
      throw InvalidProblem(fmt::format(
          "--window {}: give LEFT,RIGHT, two numbers of keys from 0 on, or -1 for no edge on that side: 512,0",
          *window));
    if (*left >= 0) p.window_left = left;
    if (*right >= 0) p.window_right = right;
  }
  if (causal_offset) {
    if (!p.counts_from_offset() && !window && !pattern.stands_at_positions())
      throw InvalidProblem(
          fmt::format("--causal-offset {} is for --causal, --window, --alibi and patterns that look back from a query: "
                      "give one of them, too",
                      *causal_offset));
    const bool top_left = *causal_offset == "top-left";
    if (!top_left && *causal_offset != "bottom-right") {
      p.causal_offset = whole_number(*causal_offset);
      if (!p.causal_offset)
        throw InvalidProblem(
            fmt::format("--causal-offset {}: give a whole number, bottom-right or top-left", *causal_offset));
    }
    if (top_left && !p.accumulate) p.causal_offset = 0;  // words are of all keys, and say nothing of a part
  }
  if (p.accumulate) p.require_offset_of_part(pattern.stands_at_positions());
  if (flags.given("prefix") && !p.masked())
    throw InvalidProblem(fmt::format("--prefix {} is for --causal or --window: give one of them, too", p.prefix));
}

void add_modifiers(const Command& command, ProblemFlags& flags) {
  for (const std::string_view name : {"softcap", "alibi", "dropout", "seed", "bias_gradient", "sinks_gradient"})
    flags.add(command, name);
}

namespace {

/// The shape of a bias: "1,8,512,512", or that of an .npy file.
std::array<index_t, 4> bias_shape(const std::string& text) {
  constexpr std::string_view kShape = "batch,heads,n_q,n_k (1 for what all share)";
  std::vector<index_t> shape =
      text.ends_with(".npy") ? file::read_npy(text).shape() : parse_list("--bias", text, kShape);
  if (shape.empty() || shape.size() > 4)
    throw InvalidProblem(fmt::format("--bias {} is [{}]: give {}, or the last of these dimensions", text,
                                     fmt::join(shape, ", "), kShape));
  shape.insert(shape.begin(), 4 - shape.size(), 1);
  return {shape[0], shape[1], shape[2], shape[3]};
}

}  // namespace

DType parse_dtype(const std::string& option, const std::string& name) {
  if (const auto t = dtype_from_name(name)) return *t;
  throw Unsupported(fmt::format("{} {}: {}", option, name, value_choice(name, {"f64", "f32", "f16", "bf16"})));
}

Words parse_bytes(const std::string& option, const std::string& text) {
  const auto bytes = bytes_from(text);
  if (!bytes) throw InvalidProblem(fmt::format("{} {}: {}", option, text, kBytesWanted));
  return *bytes;
}

std::vector<index_t> parse_list(const std::string& option, const std::string& text) {
  std::vector<index_t> list;
  for (std::size_t from = 0; from <= text.size();) {
    const std::size_t comma = std::min(text.find(',', from), text.size());
    const std::string item = text.substr(from, comma - from);
    if (const std::string wrong = not_decimal(item); !wrong.empty())
      throw InvalidProblem(fmt::format("{} {}: {}", option, text, wrong));
    list.push_back(std::stoll(item));
    from = comma + 1;
  }
  return list;
}

std::vector<index_t> parse_list(const std::string& option, const std::string& text, std::string_view names) {
  std::vector<index_t> list = parse_list(option, text);
  const auto count = static_cast<std::size_t>(std::ranges::count(names.substr(0, names.find(' ')), ',')) + 1;
  if (list.size() != count)
    throw InvalidProblem(fmt::format("{} {}: give {} numbers, apart by commas: {}", option, text, count, names));
  return list;
}

std::map<std::string, index_t> parse_assignments(const std::string& option, const std::string& text,
                                                 const std::vector<std::string>& names) {
  std::map<std::string, index_t> result;
  for (std::size_t from = 0; !text.empty() && from <= text.size();) {
    const std::size_t comma = std::min(text.find(',', from), text.size());
    const std::string item = text.substr(from, comma - from);
    const std::size_t equals = item.find('=');
    index_t value = 0;
    const bool number = equals != std::string::npos && [&] {
      const auto [end, error] = std::from_chars(item.data() + equals + 1, item.data() + item.size(), value);
      return error == std::errc() && end == item.data() + item.size() && value >= 1;
    }();
    const std::string name = item.substr(0, equals);
    if (!number || std::find(names.begin(), names.end(), name) == names.end())
      throw InvalidProblem(fmt::format("{} {}: '{}' is not NAME=NUMBER with NAME one of {} and NUMBER at least 1",
                                       option, text, item, fmt::join(names, ", ")));
    if (!result.emplace(name, value).second)
      throw InvalidProblem(fmt::format("{} {}: {} is given twice", option, text, name));
    from = comma + 1;
  }
  return result;
}

void ProblemOptions::add_to(const Command& command, bool with_planner) {
  command.option("--n", n, "number of queries and of keys, unless --nq or --nk is given");
  command.option("--nq", n_q, "queries");
  command.option("--nk", n_k, "keys");
  command.option("--d", d, "head dimension of queries and keys; merge: of o").required();
  command.option("--dv", d_v, "head dimension of values (default: --d)");
  add_without_sizes(command, with_planner);
  residence.add_to(command);
  if (with_planner)
    command.option("--threads", threads,
                   "--objective time: number of cores to model, each with its own fast memory (default: 1)");
}

void ProblemOptions::add_without_sizes(const Command& command, bool with_planner, std::size_t operations) {
  operation.add_to(command, flags, operations);
  for (const std::string_view name : {"heads", "kv_heads", "batch"}) flags.add(command, name);
  mask.add_to(command, flags);
  add_modifiers(command, flags);
  command
      .option("--bias", bias,
              "shape of a bias that is added to the scores: batch,heads,n_q,n_k, or 1 for a size that all share: "
              "1,8,512,512; or an .npy file of that shape, or of its last dimensions")
      .type_name("SHAPE|FILE");
  for (const std::string_view name : {"sinks", "lse_gradient", "bias_direction", "sinks_direction", "lse_required",
                                      "forward_given", "accumulate", "d_in"})
    flags.add(command, name);
  flags.add_others(command, true);
  command.option("--dtype", dtype, "element type of the arrays: f64 f32 f16 bf16");
  add_compute_dtype(command, compute_dtype);
  memory.add_to(command);
  if (with_planner) {
    planner.add_to(command, true, operations);
    objective.add_to(command);
  }
  command.flag("--json", json, "print JSON");
}

Problem ProblemOptions::problem() const {
  const auto size = [&](const char* name, const std::optional<index_t>& given, const std::vector<index_t>& ends) {
    if (given) return *given;
    if (n) return *n;
    if (!ends.empty()) return ends.back();
    throw InvalidProblem(fmt::format("the number of {} is missing: give --n, or both --nq and --nk", name));
  };
  if (n && n_q && n_k)
    throw InvalidProblem(fmt::format("--n {} beside --nq {} and --nk {} says nothing: leave it out", *n, *n_q, *n_k));
  Problem p;
  operation.apply_to(p, flags);
  mask.apply_to(p, flags);
  const bool lse = std::exchange(p.lse_required, false);
  p.n_q = size("queries", n_q, p.cu_seqlens_q);
  if (!attends(p.op) && d_v)
    throw InvalidProblem(fmt::format("--dv {}: operation {} has no keys; --d gives the features of o, leave --dv out",
                                     *d_v, name_of(p.op)));
  p.n_k = attends(p.op) ? size("keys", n_k, p.cu_seqlens_k) : n_k.value_or(1);
  p.d = attends(p.op) ? d : 1;
  p.d_v = d_v.value_or(d);
  if (bias) p.bias = bias_shape(*bias);
  p.require_heeded();
  p.validate();  // a pattern is made of its numbers
  mask.apply_patterns(p, planner);
  planner.apply_to(p);
  if (lse && p.method_kind() != MethodKind::exact)
    throw InvalidProblem("--lse with --approximate: approximations have no lse; leave --lse out");
  p.lse_required = lse;
  p.validate();
  p.require_heeded();
  return p;
}

DType ProblemOptions::compute() const { return compute_of(compute_dtype, parse_dtype("--dtype", dtype) == DType::f64); }

plan::Options ProblemOptions::fast_memory(const Problem& p) const {
  plan::Options o;
  require_arithmetic(compute(), p, contiguous_tensors(p, parse_dtype("--dtype", dtype)));
  if (memory.M) {
    residence.require_none();
    if (!planner.width.empty())
      throw InvalidProblem(
          fmt::format("--width {} is for fast memory in bytes: give --memory, not --M", planner.width));
    o.M = memory.words(compute());
  } else {
    const Words bytes = memory.memory ? memory.bytes() : parse_bytes("--memory", assumed_memory());
    o.memory = {bytes, residence.of(p.op, parse_dtype("--dtype", dtype), compute(), widths(p.op, true))};
  }
  return o;
}

Widths ProblemOptions::widths(Operation op, bool in_bytes) const {
  Widths widths = parse_assignments("--width", planner.width, width_names(op, in_bytes));
  for (const auto& [name, bytes] : widths)
    if (bytes > kMostWidth)
      throw InvalidProblem(fmt::format("--width {}={}: a word takes 1 to {} bytes", name, bytes, kMostWidth));
  return widths;
}

plan::Plan ProblemOptions::plan() const {
  if (threads && objective.words()) throw InvalidProblem(fmt::format("--threads {} is for --objective time", *threads));
  const int cores = threads ? asked_threads("--threads ", *threads, kMostCores) : 1;
  RunOptions run;
  run.compute = compute();
  if (memory.given() || !objective.words()) return plan(run, cores, memory.memory && objective.words());
  ProblemOptions assumed = *this;
  assumed.memory.memory = assumed_memory();
  return assumed.plan(run, cores, true);
}

plan::Plan ProblemOptions::plan(const RunOptions& run, int cores, bool in_bytes) const {
  const Problem p = problem();
  const DType element = parse_dtype("--dtype", dtype);
  const Tensors tensors = contiguous_tensors(p, element);
  require_arithmetic(run.compute, p, tensors);
  plan::Options o = planner.options(tensors, run);
  if (!in_bytes) residence.require_none();
  const auto widths = this->widths(p.op, in_bytes);
  if (in_bytes) o.memory = {memory.bytes(), residence.of(p.op, element, run.compute, widths)};
  if (in_bytes || !widths.empty() || o.keys_per_scale > 0 || size_of(element) != size_of(word_of(run.compute)))
    set_widths(o, p, element, word_of(run.compute), widths);
  return objective.plan(p, o, memory, run.compute, element, cores);
}

void add_compute_dtype(const Command& command, std::optional<std::string>& to) {
  command.option(
      "--compute-dtype", to,
      "arithmetic: f64, f32, or bf16 with sums in f32 (forward and backward, with bf16 inputs); default: f64 "
      "if an input is f64, else f32");
}

DType compute_of(const std::optional<std::string>& asked, bool any_f64) {
  if (asked) return parse_dtype("--compute-dtype", *asked);
  return any_f64 ? DType::f64 : DType::f32;
}

int threads_of(const std::optional<index_t>& asked) {
  const int most = default_pool().size();
  if (!asked) return 0;
  if (*asked > most)
    throw InvalidProblem(fmt::format(
        "--threads {0}: there {1} {2} here; set the environment variable REDBLUE_THREADS={0} to have more than CPUs",
        *asked, most == 1 ? "is" : "are", most));
  return asked_threads("--threads ", *asked, most);
}

}  // namespace redblue::cli
