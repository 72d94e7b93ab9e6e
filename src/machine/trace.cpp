#include "redblue/machine/trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <istream>
#include <ostream>
#include <sstream>

#include "redblue/core/error.hpp"

namespace redblue::machine {

namespace {

using Kind = Operation::Kind;
constexpr std::array<std::string_view, 7> kWords = {"open", "close", "read", "write", "compute", "update", "step"};

std::string to_text(const Arg& a) {
  const Block& b = a.block;
  const std::string who =
      a.kind == Arg::Kind::tile ? fmt::format("t{}", a.depth) : fmt::format("{}#{}", name_of(b.array), b.instance);
  return fmt::format("{}[{}:{},{}:{}]", who, b.row, b.row + b.shape.rows, b.col, b.col + b.shape.cols);
}

std::string to_text(const kernel::AnyPlainKernel& kernel) {
  return std::visit(
      [](const auto& k) {
        std::string text(k.name);
        if constexpr (requires { k.parameter_names; }) {
          const auto values = kernel::parameters_of(k);
          for (std::size_t i = 0; i < values.size(); ++i)
            text += fmt::format("{}{}={}", i == 0 ? "(" : ",", k.parameter_names[i], values[i]);
          text += ")";
        }
        return text;
      },
      kernel);
}

template <class K>
std::vector<std::string_view> parameter_names_of(const K&) {
  if constexpr (requires { K::parameter_names; })
    return {K::parameter_names.begin(), K::parameter_names.end()};
  else
    return {};
}

/// What is left of one line. Every take_ throws when the line does not go on that way.
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
    if (skip("t")) {
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
  kernel::AnyPlainKernel kernel() {
    const std::string_view name_token = name();
    std::vector<double> values;
    std::vector<std::string_view> names;
    if (skip("(")) {
      do {
        names.push_back(name());
        expect("=");
        values.push_back(number<double>());
      } while (skip(","));
      expect(")");
    }
    const auto k = kernel::make_plain(name_token, values);
    if (!k) fail(fmt::format("a known kernel with its parameters, each of its type, not '{}',", name_token));
    const auto known = std::visit([](const auto& plain) { return parameter_names_of(plain); }, *k);
    if (names != known) fail(fmt::format("the parameters {} of '{}'", fmt::join(known, ", "), name_token));
    return *k;
  }

 private:
  std::string text_;
  index_t number_;
  std::string_view rest_;
};

Operation parse(Line& line) {
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
      op.kernel = line.kernel();
      [[fallthrough]];
    case Kind::read:
    case Kind::write:
      if (op.kind == Kind::read || op.kind == Kind::write) op.args.push_back(line.arg());
      while (line.skip(" ")) op.args.push_back(line.arg());
      break;
  }
  if (!line.empty()) line.fail("the end of the line");
  if (const std::string fault = detail::fault_of(op); !fault.empty()) line.refuse(fault);
  return op;
}

}  // namespace

std::string detail::to_text(const Operation& op) {
  std::string text(kWords[static_cast<std::size_t>(op.kind)]);
  if (op.kind == Kind::open || op.kind == Kind::close) {
    text += fmt::format(" t{} {}x{}", op.depth, op.shape.rows, op.shape.cols);
    if (op.layout != Layout::row_major) text += fmt::format(" {}", kLayoutNames[static_cast<std::size_t>(op.layout)]);
  }
  if (op.kind == Kind::step) text += fmt::format(" {}", op.depth);
  if (op.kind == Kind::run || op.kind == Kind::modify) text += " " + machine::to_text(op.kernel);
  for (const Arg& a : op.args) text += " " + machine::to_text(a);
  return text;
}

void detail::throw_trace_full(std::size_t most) {
  throw InvalidProblem(
      fmt::format("the trace has more than {} operations: choose a smaller problem, or allow more", most));
}

void write_text(std::ostream& out, const Trace& trace) {
  out << "# redblue.trace/2\n";
  for (const Operation& op : trace.operations) out << detail::to_text(op) << '\n';
}

Trace read_text(std::istream& in) {
  Trace trace;
  std::string text;
  for (index_t number = 1; std::getline(in, text); ++number) {
    if (text.empty() || text.front() == '#') continue;
    Line line(text, number);
    trace.operations.push_back(parse(line));
  }
  return trace;
}

}  // namespace redblue::machine
