#include "redblue/machines/trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <istream>
#include <ostream>
#include <sstream>

#include "redblue/language/error.hpp"

namespace redblue::machine {

namespace {

using Kind = Operation::Kind;
constexpr std::array<std::string_view, 9> kWords = {"open",   "close", "read",   "write", "compute",
                                                    "update", "step",  "decide", "index"};

std::string to_text(const Arg& a) {
  const Block& b = a.block;
  const std::string who =
      a.kind == Arg::Kind::tile ? fmt::format("t{}", a.depth) : fmt::format("{}#{}", name_of(b.array), b.instance);
  return fmt::format("{}[{}:{},{}:{}]", who, b.row, b.row + b.shape.rows, b.col, b.col + b.shape.cols);
}

using Patterns = std::span<const std::shared_ptr<const Pattern>>;

/// "pattern 0 4x6 0:2=0:3,5:6 2:4=1:2": of two groups of rows the keys that they see.
std::string to_text(const Pattern& pattern, std::size_t number) {
  std::string text = fmt::format("pattern {} {}x{}", number, pattern.n_q(), pattern.n_k());
  pattern.rows().for_groups([&](Range rows, std::span<const Range> runs) {
    text += fmt::format(" {}:{}=", rows.begin, rows.end);
    for (std::size_t k = 0; k < runs.size(); ++k)
      text += fmt::format("{}{}:{}", k > 0 ? "," : "", runs[k].begin, runs[k].end);
  });
  return text;
}

std::string to_text(const kernel::PlainKernel& kernel, Patterns patterns) {
  const kernel::AnyKernel k = kernel.any();
  std::string text(k.name());
  const auto names = kernel.parameter_names();
  if (names.empty()) return text;
  const std::vector<double> values = k.parameters();
  for (std::size_t i = 0; i < values.size(); ++i)
    text += fmt::format("{}{}={}", i == 0 ? "(" : ",", names[i], values[i]);
  for (std::size_t i = 0; i < patterns.size(); ++i)
    if (const Place* place = k.place(); place != nullptr && place->mask.pattern == patterns[i].get())
      text += fmt::format(",pattern={}", i);
  return text + ")";
}

/// The rest of one line, after what has been taken. Every take_ throws when the line does not go on that way.
class Line {
 public:
  Line(std::string text, index_t number) : text_(std::move(text)), number_(number), rest_(text_) {}

  bool empty() const { return rest_.empty(); }
  [[noreturn]] void fail(std::string_view what) const {
    throw InvalidProblem(fmt::format("trace line {}: expected {} at '{}'", number_, what, rest_));
  }
  [[noreturn]] void refuse(std::string_view fault) const {
    throw InvalidProblem(fmt::format("trace line {}: {}", number_, fault));
  }
  bool skip(std::string_view token) {
    if (!rest_.starts_with(token)) return false;
    rest_.remove_prefix(token.size());
    return true;
  }
  void expect(std::string_view token) {
    if (!skip(token)) fail(fmt::format("'{}'", token));
  }
  template <class Number>
  Number number() {
    Number value{};
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error != std::errc()) fail("a number");
    rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
    return value;
  }
  std::string_view name() {
    const std::size_t n = std::min(
        rest_.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789"), rest_.size());
    const std::string_view taken = rest_.substr(0, n);
    rest_.remove_prefix(n);
    return taken;
  }
  template <std::size_t N>
  std::size_t one_of(const std::array<std::string_view, N>& names) {
    const auto before = rest_;
    const auto found = std::find(names.begin(), names.end(), name());
    if (found == names.end()) {
      rest_ = before;
      fail(fmt::format("one of {}", fmt::join(names, ", ")));
    }
    return static_cast<std::size_t>(found - names.begin());
  }
  Shape shape() {
    Shape s;
    s.rows = number<index_t>();
    expect("x");
    s.cols = number<index_t>();
    return s;
  }
  std::pair<index_t, index_t> range() {
    const index_t first = number<index_t>();
    expect(":");
    const index_t end = number<index_t>();
    if (first < 0 || end < first)
      fail(fmt::format("a range from 0 on that ends where it begins or later, not {}:{},", first, end));
    return {first, end - first};
  }
  Arg arg() {
    Arg a;
    if (rest_.size() > 1 && rest_[0] == 't' && rest_[1] >= '0' && rest_[1] <= '9') {  // arrays may begin with t, too
      expect("t");
      a.depth = number<index_t>();
    } else {
      a.kind = Arg::Kind::stream;
      a.block.array = static_cast<SlowArray>(one_of(kSlowArrayNames));
      expect("#");
      a.block.instance = number<index_t>();
    }
    expect("[");
    std::tie(a.block.row, a.block.shape.rows) = range();
    expect(",");
    std::tie(a.block.col, a.block.shape.cols) = range();
    expect("]");
    return a;
  }
  /// What to_text(pattern, number) writes, after its first word.
  std::shared_ptr<const Pattern> pattern(std::size_t next) {
    constexpr index_t kMost = 1 << 20;
    if (number<std::size_t>() != next) fail(fmt::format("pattern {}", next));
    expect(" ");
    const Shape s = shape();
    if (s.rows < 0 || s.cols < 0 || s.rows > kMost || s.cols > kMost) refuse("a pattern has 0 to 2^20 rows and keys");
    RunLists rows;
    while (skip(" ")) {
      const auto [first, count] = range();
      if (first != rows.size() || count == 0 || first + count > s.rows) refuse("its rows are not one after another");
      expect("=");
      std::vector<Range> runs;
      for (index_t end = -1; !empty() && rest_.front() != ' ';) {
        if (!runs.empty()) expect(",");
        const auto [key, keys] = range();
        if (key <= end || keys == 0 || key + keys > s.cols) refuse("its keys are not in order, or not there");
        runs.push_back({key, end = key + keys});
      }
      rows.append(count, runs);
    }
    if (rows.size() != s.rows) refuse("its rows are not all there");
    return std::make_shared<const Pattern>(std::move(rows), s.cols);
  }
  kernel::PlainKernel kernel(Patterns patterns) {
    const std::string_view name_token = name();
    std::vector<double> values;
    std::vector<std::string_view> names;
    const Pattern* pattern = nullptr;
    if (skip("(")) {
      do {
        names.push_back(name());
        expect("=");
        if (names.back() == "pattern") {
          names.pop_back();
          const auto which = number<std::size_t>();
          if (which >= patterns.size()) refuse(fmt::format("there is no pattern {}", which));
          pattern = patterns[which].get();
          break;
        }
        values.push_back(number<double>());
      } while (skip(","));
      expect(")");
    }
    auto k = kernel::make_plain(name_token, values);
    if (!k) fail(fmt::format("a known kernel with its parameters, each of its type, not '{}',", name_token));
    const auto known = k->parameter_names();
    if (!std::ranges::equal(names, known))
      fail(fmt::format("the parameters {} of '{}'", fmt::join(known, ", "), name_token));
    if (pattern != nullptr && !k->set_pattern(pattern))
      refuse(fmt::format("'{}' has no place in a pattern", name_token));
    return *k;
  }

 private:
  std::string text_;
  index_t number_;
  std::string_view rest_;
};

Operation parse(Line& line, Patterns patterns) {
  Operation op{};
  op.kind = static_cast<Kind>(line.one_of(kWords));
  line.expect(" ");
  switch (op.kind) {
    case Kind::step:
      op.depth = line.number<index_t>();
      break;
    case Kind::open:
    case Kind::close:
      line.expect("t");
      op.depth = line.number<index_t>();
      line.expect(" ");
      op.shape = line.shape();
      if (op.kind == Kind::open && line.skip(" ")) op.layout = static_cast<Layout>(line.one_of(kLayoutNames));
      break;
    case Kind::run:
    case Kind::modify:
      op.kernel = line.kernel(patterns);
      [[fallthrough]];
    case Kind::read:
    case Kind::write:
      if (op.kind == Kind::read || op.kind == Kind::write) op.args.push_back(line.arg());
      while (line.skip(" ")) op.args.push_back(line.arg());
      break;
    case Kind::decide:
    case Kind::index:
      op.depth = line.number<index_t>();
      line.expect(" ");
      op.args.push_back(line.arg());
      break;
  }
  if (!line.empty()) line.fail("the end of the line");
  if (const std::string fault = detail::fault_of(op); !fault.empty()) line.refuse(fault);
  return op;
}

}  // namespace

std::string detail::to_text(const Operation& op, Patterns patterns) {
  std::string text(kWords[static_cast<std::size_t>(op.kind)]);
  if (op.kind == Kind::open || op.kind == Kind::close) {
    text += fmt::format(" t{} {}x{}", op.depth, op.shape.rows, op.shape.cols);
    if (op.layout != Layout::row_major) text += fmt::format(" {}", kLayoutNames[static_cast<std::size_t>(op.layout)]);
  }
  if (op.kind == Kind::step || op.kind == Kind::decide || op.kind == Kind::index) text += fmt::format(" {}", op.depth);
  if (op.kind == Kind::run || op.kind == Kind::modify) text += " " + machine::to_text(op.kernel, patterns);
  for (const Arg& a : op.args) text += " " + machine::to_text(a);
  return text;
}

void detail::throw_trace_full(std::size_t most) {
  throw InvalidProblem(
      fmt::format("the trace has more than {} operations: choose a smaller problem, or allow more", most));
}

void detail::throw_other_data(index_t answer, index_t recorded) {
  throw InvalidProblem(
      fmt::format("the trace was recorded on other numbers: a decision is {} here, and was {}", answer, recorded));
}

void write_text(std::ostream& out, const Trace& trace) {
  out << "# redblue.trace/2\n";
  for (std::size_t k = 0; k < trace.patterns.size(); ++k) out << to_text(*trace.patterns[k], k) << '\n';
  for (const Operation& op : trace.operations) out << detail::to_text(op, trace.patterns) << '\n';
}

Trace read_text(std::istream& in) {
  Trace trace;
  std::string text;
  for (index_t number = 1; std::getline(in, text); ++number) {
    if (text.empty() || text.front() == '#') continue;
    Line line(text, number);
    if (line.skip("pattern "))
      trace.patterns.push_back(line.pattern(trace.patterns.size()));
    else
      trace.operations.push_back(parse(line, trace.patterns));
  }
  return trace;
}

}  // namespace redblue::machine
