#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "redblue/language/error.hpp"
#include "redblue/language/nearest.hpp"
#include "redblue/methods/kernels/polynomial.hpp"
#include "redblue/methods/maths/approximations.hpp"

/// From "performer:256,seed=7" to an approximation, and back.
namespace redblue {

namespace {

template <class Number>
std::optional<Number> number(std::string_view text) {
  Number value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// How a method is written, by its name.
constexpr std::array<std::pair<std::string_view, std::string_view>, 9> kForms{{
    {"linear", "linear"},
    {"performer", "performer:FEATURES[,seed=N], such as performer:256"},
    {"linformer", "linformer:RANK[,signs][,seed=N], such as linformer:64"},
    {"nystroem", "nystroem:LANDMARKS[,iterations=N], such as nystroem:64"},
    {"smyrf", "smyrf[:rounds=N,cluster=N,seed=N]"},
    {"hyper", "hyper[:block=N,samples=N,planes=N,seed=N]"},
    {"reformer", "reformer[:rounds=N,chunk=N,buckets=N,seed=N]"},
    {"coreset", "coreset:block=KEYS,rank=KEYS[,tau=balanced][,carried][,seed=N], such as coreset:block=64,rank=16"},
    {"sample", "sample:KEYS[,seed=N], such as sample:64"},
}};
constexpr std::string_view kPolynomials =
    "DEGREE:RANGE, as in 2:1.0 for a polynomial of degree 2 and scores from -1 to 1, with ,taylor or ,chebyshev for "
    "other coefficients than minimax ones, and ,rows, ,centred, ,exact-keys=H, ,cluster=N[,seed=N], ,gaussian or "
    ",no-exact-rows for one of each row";

/// One sentence: how the method that was probably meant is written, or which methods there are.
[[noreturn]] void refuse(std::string_view text) {
  std::vector<std::string_view> names;
  names.reserve(kForms.size());
  for (const auto& [name, form] : kForms) names.push_back(name);
  const std::string name(text.substr(0, text.find_first_of(":,")));
  const std::string meant = nearest(name, names);
  std::string wanted = fmt::format("{}; or a method: {}", kPolynomials, fmt::join(names, ", "));
  if (number<index_t>(name)) wanted = kPolynomials;
  for (const auto& [known, form] : kForms)
    if (known == meant) wanted = form;
  throw InvalidProblem(fmt::format("approximation {}: give {}", text, wanted));
}

/// NAME:SIZE,WORD,WORD=N in its parts. Words that nobody asked for are found out by `finish`.
class Parts {
 public:
  explicit Parts(std::string_view text) : text_(text) {
    std::string_view head = text;
    for (std::size_t comma = head.rfind(','); comma != std::string_view::npos; comma = head.rfind(',')) {
      words_.push_back(head.substr(comma + 1));
      head = head.substr(0, comma);
    }
    const std::size_t colon = head.find(':');
    name_ = head.substr(0, colon);
    if (colon != std::string_view::npos) size_ = head.substr(colon + 1);
  }
  std::string_view name() const { return name_; }
  template <class Number = index_t>
  Number size() const {
    const auto n = size_ ? number<Number>(*size_) : std::nullopt;
    if (!n) refuse(text_);
    return *n;
  }
  /// What stands after the colon is a word, too.
  void only_words() {
    if (size_) words_.push_back(*std::exchange(size_, std::nullopt));
  }
  bool has_words() const { return !words_.empty(); }
  /// N of WORD=N; `otherwise` where it is not there.
  index_t value(std::string_view word, index_t otherwise) {
    for (auto w = words_.begin(); w != words_.end(); ++w)
      if (w->starts_with(word) && w->substr(word.size()).starts_with('=')) {
        const auto n = number<index_t>(w->substr(word.size() + 1));
        if (!n) refuse(text_);
        words_.erase(w);
        return *n;
      }
    return otherwise;
  }
  /// The same word again is left over.
  bool has(std::string_view word) {
    const auto w = std::find(words_.begin(), words_.end(), word);
    if (w == words_.end()) return false;
    words_.erase(w);
    return true;
  }
  template <class T>
  T finish(T made, bool sized = true) const {
    if (!words_.empty() || sized != size_.has_value()) refuse(text_);
    return made;
  }

 private:
  std::string_view text_, name_;
  std::optional<std::string_view> size_;
  std::vector<std::string_view> words_;
};

Method method_from(Parts words, std::string_view text) {
  if (words.name() == "linear") return words.finish(LinearAttention{}, false);
  if (words.name() == "performer") {
    const Performer p{words.size(), words.value("seed", 0)};
    return words.finish(p);
  }
  if (words.name() == "linformer") {
    const index_t rank = words.size();
    const bool signs = words.has("signs");
    return words.finish(Linformer{rank, signs, signs ? words.value("seed", 0) : 0});
  }
  if (words.name() == "nystroem") {
    const Nystroemformer n{words.size(), words.value("iterations", Nystroemformer{}.iterations)};
    return words.finish(n);
  }
  if (words.name() == "sample") {
    const UniformSample s{words.size(), words.value("seed", 0)};
    return words.finish(s);
  }
  if (words.name() == "smyrf") {
    words.only_words();
    const Smyrf d;
    const Smyrf s{words.value("rounds", d.rounds), words.value("cluster", d.cluster), words.value("seed", d.seed)};
    return words.finish(s, false);
  }
  if (words.name() == "hyper") {
    words.only_words();
    const HyperAttention d;
    const HyperAttention h{words.value("block", d.block), words.value("samples", d.samples),
                           words.value("planes", d.planes), words.value("seed", d.seed)};
    return words.finish(h, false);
  }
  if (words.name() == "reformer") {
    words.only_words();
    const Reformer d;
    const Reformer r{words.value("rounds", d.rounds), words.value("chunk", d.chunk), words.value("buckets", d.buckets),
                     words.value("seed", d.seed)};
    return words.finish(r, false);
  }
  if (words.name() == "coreset") {
    words.only_words();
    Coreset c;
    const index_t none = 0;
    c.block = words.value("block", none);
    c.rank = words.value("rank", none);
    if (c.block == none || c.rank == none) refuse(text);
    c.balanced = words.has("tau=balanced");
    if (!c.balanced) words.has("tau=1");
    c.carried = words.has("carried");
    c.seed = words.value("seed", 0);
    return words.finish(c, false);
  }
  refuse(text);
}

/// A second name is refused with what is left over.
Fit fit_from(Parts& words) {
  for (const Fit fit : {Fit::taylor, Fit::chebyshev, Fit::minimax, Fit::gaussian})
    if (words.has(name_of(fit))) return fit;
  return Fit::minimax;
}

RowOptions row_options_from(Parts words, Fit fit, std::string_view text) {
  RowOptions how;
  how.fit = fit;
  how.centred = words.has("centred") || fit == Fit::gaussian;
  how.exact_rows = !words.has("no-exact-rows");
  how.exact_keys = words.value("exact-keys", 0);
  words.has("rows");  // says only that there are options
  if (const index_t cluster = words.value("cluster", kAsFits); cluster != kAsFits) {
    if (cluster < 1) throw InvalidProblem(fmt::format("cluster = {}: give a number of keys from 1", cluster));
    how.cluster = cluster;
    how.seed = words.value("seed", 0);
  }
  if (how.exact_keys < 0) refuse(text);
  return words.finish(how);
}

}  // namespace

AnyApproximation approximation_from(std::string_view text) {
  Parts words(text);
  const auto degree = number<index_t>(words.name());
  if (!degree) return approximate_by(method_from(words, text));
  constexpr index_t kMost = kernel::Monomials::kMostDegree;
  if (*degree < 1 || *degree > kMost)
    throw InvalidProblem(
        fmt::format("approximation {}: degree = {} of a polynomial: give 1 to {}", text, *degree, kMost));
  const auto range = words.size<double>();
  const Fit fit = fit_from(words);
  if (!words.has_words() && fit != Fit::gaussian) return approximate_exp(*degree, range, fit);
  return polynomials_of_rows(*degree, range, row_options_from(words, fit, text));
}

namespace {

struct TextOf {
  std::string operator()(std::monostate) const { return {}; }
  std::string operator()(const LinearAttention&) const { return "linear"; }
  std::string operator()(const Performer& p) const { return fmt::format("performer:{},seed={}", p.features, p.seed); }
  std::string operator()(const Linformer& l) const {
    return fmt::format("linformer:{}", l.rank) + (l.random_signs ? fmt::format(",signs,seed={}", l.seed) : "");
  }
  std::string operator()(const Nystroemformer& n) const {
    return fmt::format("nystroem:{},iterations={}", n.landmarks, n.iterations);
  }
  std::string operator()(const Smyrf& s) const {
    return fmt::format("smyrf:rounds={},cluster={},seed={}", s.rounds, s.cluster, s.seed);
  }
  std::string operator()(const HyperAttention& h) const {
    return fmt::format("hyper:block={},samples={},planes={},seed={}", h.block, h.samples, h.planes, h.seed);
  }
  std::string operator()(const Reformer& r) const {
    return fmt::format("reformer:rounds={},chunk={},buckets={},seed={}", r.rounds, r.chunk, r.buckets, r.seed);
  }
  std::string operator()(const Coreset& c) const {
    return fmt::format("coreset:block={},rank={}{}{},seed={}", c.block, c.rank, c.balanced ? ",tau=balanced" : "",
                       c.carried ? ",carried" : "", c.seed);
  }
  std::string operator()(const UniformSample& s) const { return fmt::format("sample:{},seed={}", s.keys, s.seed); }
};

}  // namespace

std::string PublishedMethod::text(index_t n_k) const { return std::visit(TextOf{}, redblue::fitted(method, n_k)); }

std::string Polynomial::text(index_t) const {
  return fmt::format("{}:{}{}", degree(), range, fit == Fit::minimax ? "" : fmt::format(",{}", name_of(fit)));
}

std::string RowPolynomials::text(index_t n_k) const {
  return fmt::format(
      "{},rows{}{}{}", last().text(n_k), centred ? ",centred" : "",
      cluster > 0 ? fmt::format(",cluster={},seed={}", cluster, seed) : fmt::format(",exact-keys={}", exact_keys),
      exact_rows ? "" : ",no-exact-rows");
}

}  // namespace redblue
