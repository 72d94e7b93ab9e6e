// Replays a certificate of the red-blue pebble game (docs/pebbling.md): moves with M enforced, counts, and outputs in
// fp64 by definition. Exit codes: 0 all holds, 1 a claim is wrong, 2 no certificate. g++ -std=c++20 replay.cpp
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>
using std::size_t, std::string, std::to_string;
using Matrix = std::vector<std::vector<double>>;
using Words = std::map<string, double>;
void claim(bool holds, const string& what) { return holds ? void() : throw std::domain_error(what); }
void expect(bool holds, const string& what) { return holds ? void() : throw std::invalid_argument(what); }
double given_word(const Words& w, const string& n) { return expect(w.contains(n), n + " is not given"), w.at(n); }
std::uint32_t crc32(const string& bytes) {
  std::uint32_t crc = 0xffffffff;
  for (size_t k = 0; k < 8 * bytes.size(); ++k) {
    crc ^= k % 8 == 0 ? static_cast<unsigned char>(bytes[k / 8]) : 0U;
    crc = (crc & 1) != 0 ? (crc >> 1) ^ 0xedb88320 : crc >> 1;
  }
  return ~crc;
}
std::vector<string> split(const string& text, char at) {
  std::vector<string> words;
  std::istringstream in(text);
  for (string word; std::getline(in, word, at);) words.push_back(word);
  return words;
}
std::vector<string> match(const string& text, const std::regex& pattern) {
  std::smatch groups;  // of a short text: std::regex needs stack for each letter
  expect(text.size() < 100 && std::regex_match(text, groups, pattern), "no certificate has " + text.substr(0, 99));
  return {groups.begin(), groups.end()};
}
const std::regex kDigits("0|[1-9]\\d{0,18}");
size_t number(const string& digits) { return std::stoull(match(digits, kDigits)[0]); }
size_t number_if(const string& digits) { return digits.empty() ? 0 : number(digits); }
double real(const string& text) {
  char shortest[400];
  const double x = std::stod(text);
  const auto form = text.find('e') == string::npos ? std::chars_format::fixed : std::chars_format::scientific;
  return expect(string(shortest, std::to_chars(shortest, shortest + 400, x, form).ptr) == text && x == x, text), x;
}
struct Node {
  string name, op;
  double k;
  bool output;
  std::vector<size_t> parents;
  std::vector<string> formula;
};
/// Each operation as a postfix formula of its parents x0, x1, .. and its constant k. For n the formula goes on.
const string kFormulas =
    ";constant 0:k;copy 1:x0;log 1:x0 log;exp 1:k x0 * exp;exp 2:k x0 * x1 - exp;difference 2:x0 x1 -;"
    "quotient 2:x0 x1 /;multiply_add 3:x0 k x1 * x2 * +;input 0:;sum n:x0 +;maximum n:x0 max;"
    "product n:k x0 *;unknown n:x0 +;";
const std::set<string> kOne{"exp", "log", "tanh"}, kTwo{"+", "-", "*", "/", "max"};
double value_of(const Node& node, const std::vector<double>& x) {
  claim(node.op != "unknown", node.name + " has no operation, so that outputs have no values");
  std::vector<double> stack;
  for (const string& t : node.formula) {
    const bool one = kOne.contains(t), two = kTwo.contains(t), k = t == "k" && node.op != "formula";
    if (!one && !two) stack.push_back(k ? node.k : t[0] == 'x' ? x.at(number(t.substr(1))) : real(t));
    claim(stack.size() >= (two ? 2U : 1U), node.name + ": its formula lacks a value before " + t);
    const double b = stack.back();
    if (two) stack.pop_back();
    double& a = stack.back();
    if (one) a = t == "exp" ? std::exp(b) : t == "log" ? std::log(b) : std::tanh(b);
    if (two) a = t == "+" ? a + b : t == "-" ? a - b : t == "*" ? a * b : t == "/" ? a / b : std::max(a, b);
  }
  return claim(stack.size() == 1, node.name + ": its formula does not leave one value"), stack[0];
}
Node read_node(const string& line, size_t v) {
  const auto w = split(line + " ", ' ');
  const bool named = w[0] > "" && std::ranges::all_of(w[0], [](unsigned char c) { return c > ' '; });
  expect(named && w.size() > 4 && (w[3] == "out" || w[3] == "."), "no node: " + line.substr(0, 99));
  Node node{w[0] == "-" ? "node " + to_string(v) : w[0], w[1], real(w[2]), w[3] == "out", {}, {w.begin() + 5, w.end()}};
  for (const string& p : split(w[4] == "-" ? "" : w[4] + ",", ','))
    node.parents.push_back(number(p)), expect(node.parents.back() < v, "a parent comes after " + node.name);
  const size_t count = node.parents.size(), fixed = kFormulas.find(";" + w[1] + " " + to_string(count) + ":");
  const size_t at = fixed == string::npos && count > 0 ? kFormulas.find(";" + w[1] + " n:") : fixed;
  expect(w[1] == "formula" ? count > 0 && w[2] == "1" : at != string::npos && w.size() == 5, "no node: " + node.name);
  if (w[1] == "formula") return value_of(node, std::vector<double>(count, 1)), node;  // it is one of these parents
  node.formula = split(split(split(kFormulas.substr(at + 1), ';')[0] + " ", ':')[1], ' ');
  for (size_t k = 1; at != fixed && k < count; ++k)
    node.formula.insert(node.formula.end(), {"x" + to_string(k), node.formula.back()});
  expect(w[2] == "1" || std::ranges::count(node.formula, "k") > 0, node.name + " has no constant");
  if (w[1] == "sum" || w[1] == "maximum") node.formula.erase(node.formula.begin() + 1);
  return node;
}
struct Play {
  std::map<string, string> head{};
  std::vector<Node> nodes{};
  std::vector<string> moves{};
  std::vector<size_t> counts{};
};
Play read_play(std::istream&& file) {
  const string text{std::istreambuf_iterator<char>(file), {}};
  const size_t end = std::min(text.rfind("crc32 "), text.size());
  char digest[24];
  std::snprintf(digest, sizeof digest, "crc32 %08x\n", static_cast<unsigned>(crc32(text.substr(0, end))));
  const bool signed_so = end > 0 && text[end - 1] == '\n' && text.substr(end) == digest;
  expect(signed_so && text.find('\r') == string::npos, file ? "the digest is wrong" : "it cannot be read");
  std::istringstream lines(text.substr(0, end));
  string line;
  const auto next = [&] { return std::getline(lines, line) ? line : throw std::invalid_argument("it was cut"); };
  expect(next() == "redblue pebbling certificate 1", "it is no certificate of version 1");
  Play play;
  for (const char* const key : {"schedule", "graph", "problem", "rules", "M", "nodes"})
    play.head[key] = next().substr(std::min(line.size(), string(key).size() + 1)),
    expect(line.starts_with(key + string(" ")) && !play.head[key].empty(), key + string(" is missing"));
  std::set<string> names;
  for (size_t v = 0; v < number(play.head["nodes"]); ++v) {
    play.nodes.push_back(read_node(next(), v));
    expect(names.insert(play.nodes[v].name).second, "two nodes have one name");
  }
  const size_t moves = number(match(next(), std::regex("moves (\\d+)"))[1]);
  for (size_t k = 0; k < moves; k += 20) {
    for (const string& move : split(next(), ' ')) play.moves.push_back(move);
    expect(play.moves.size() == std::min(k + 20, moves) && line.back() != ' ', "moves are not as announced");
  }
  const auto w = match(next(), std::regex("counts reads=(\\d+) writes=(\\d+) computed=(\\d+) peak=(\\d+)"));
  for (size_t k = 1; k < w.size(); ++k) play.counts.push_back(number(w[k]));
  expect(lines.peek() == EOF, "counts are not the last");
  return play;
}
struct Place {
  std::uint64_t red = 0, waiting = 0;
  bool blue = false, made = false, read = false;
  std::set<size_t> open{};  // the parents of edges to compute, where they are computed one by one
};
std::vector<size_t> replay(const Play& play) {
  static const std::regex kRules("(place|slide|partial)( once)?( unused-inputs)?( processors=(\\d+))?");
  const auto rules = match(play.head.at("rules"), kRules);
  const bool partial = rules[1] == "partial", once = partial || !rules[2].empty();
  const size_t processors = rules[4].empty() ? 1 : number(rules[5]), M = number(play.head.at("M"));
  expect((rules[4].empty() || processors > 1) && processors <= 64 && !(partial && rules[2] + rules[4] != ""), rules[0]);
  std::vector<Place> places(play.nodes.size());
  for (size_t v = 0; v < places.size(); ++v) {
    places[v].blue = places[v].made = play.nodes[v].op == "input";
    if (partial) places[v].open = {play.nodes[v].parents.begin(), play.nodes[v].parents.end()};
    for (const size_t p : places[v].open) ++places[p].waiting;
  }
  static const std::regex kMove(R"((?:([rwcd])(\d+)|([su])(\d+)<(\d+))(?:@([1-9]\d?))?)");
  std::vector<size_t> red(processors), counts(4);
  for (size_t k = 0; k < play.moves.size(); ++k) {
    const auto w = match(play.moves[k], kMove);
    const char kind = w[0][0];
    const size_t v = number(w[2] + w[4]), from = number_if(w[5]), processor = number_if(w[6]);
    expect(v < places.size() && from < places.size() && processor < processors, "there is no such node: " + w[0]);
    const Node& node = play.nodes[v];
    Place &place = places[v], &parent = places[from];
    const std::uint64_t bit = std::uint64_t{1} << processor;
    const bool is_red = (place.red & bit) != 0, whole = place.open.empty();
    const auto legal = [&](bool holds, const string& why) {
      claim(holds, "move " + to_string(k + 1) + ", " + w[0] + " (" + node.name + "): " + why);
    };
    legal(kind != 'r' || place.blue, "it is not blue");
    if (kind == 'w' || kind == 'd') {
      legal(is_red, "it is not red");
      legal(kind == 'w' || !partial || place.blue || (whole && place.waiting == 0), "its word would be lost");
    } else if (kind == 'u') {
      legal(place.open.erase(from) == 1, "there is no such edge, or it was computed");
      legal(parent.open.empty() && (parent.red & bit) != 0, "its parent is not whole and red");
      legal(!place.blue || is_red, "it is blue only");
      --parent.waiting, place.blue = false;
    } else if (kind != 'r') {
      legal(node.op != "input" && !(once && place.made) && !(partial && !node.parents.empty()), "it cannot be");
      for (const size_t p : node.parents) legal((places[p].red & bit) != 0, "a parent is not red");
      legal(kind == 'c' || (rules[1] == "slide" && std::ranges::count(node.parents, from) > 0), "it cannot slide");
    }
    if (kind == 'd' || kind == 's') (kind == 'd' ? place : parent).red &= ~bit, --red[processor];
    const bool makes = kind == 'c' || kind == 's' || kind == 'u';
    if ((makes || kind == 'r') && (place.red & bit) == 0) place.red |= bit, ++red[processor];
    legal(red[processor] <= M, "more than M red pebbles");
    counts[0] += kind == 'r', counts[1] += kind == 'w', counts[2] += makes, place.made |= makes;
    place.read |= kind == 'r', place.blue |= kind == 'w', counts[3] = std::max(counts[3], red[processor]);
  }
  for (size_t v = 0; v < places.size(); ++v) {
    const Place& p = places[v];
    claim(!play.nodes[v].output || (p.blue && p.made && p.open.empty()), play.nodes[v].name + " is not made");
    claim(rules[3].empty() || play.nodes[v].op != "input" || p.read, play.nodes[v].name + " was never read");
  }
  return counts;
}
Matrix product(const Matrix& a, const Matrix& b, double k = 1) {
  Matrix c(a.size(), std::vector<double>(b[0].size()));
  for (size_t i = 0; i < c.size(); ++i)
    for (size_t j = 0; j < c[i].size(); ++j)
      for (size_t t = 0; t < b.size(); ++t) c[i][j] += k * a[i][t] * b[t][j];
  return c;
}
Matrix turned(const Matrix& m) {
  Matrix result(m[0].size(), std::vector<double>(m.size()));
  for (size_t k = 0, n = m.size(); k < n * m[0].size(); ++k) result[k / n][k % n] = m[k % n][k / n];
  return result;
}
string at(string name, size_t i) { return name + "[" + to_string(i) + "]"; }
string at(string name, size_t i, size_t t) { return name + "[" + to_string(i) + "," + to_string(t) + "]"; }
void put(Words& to, const string& name, const Matrix& m) {
  for (size_t k = 0, n = m[0].size(); k < m.size() * n; ++k) to[at(name, k / n, k % n)] = m[k / n][k % n];
}
/// Fills in the words that inputs may hold and those of the outputs: attention and its gradients by definition.
void define(const string& problem, const string& seed, const Words& table, size_t nodes, Words& in, Words& out) {
  static const std::regex kProblem("(forward|backward|gradient) nq=(\\d+) nk=(\\d+) d=(\\d+) dv=(\\d+) mask=");
  const size_t cut = problem.find("mask=") + 5;
  const auto w = match(problem.substr(0, cut), kProblem);
  const size_t nq = number(w[2]), nk = number(w[3]), d = number(w[4]), dv = number(w[5]);
  string mask = problem.substr(cut), shown;
  const bool few = mask.size() > 6 || std::min(nq, nk) * std::min(nq, nk) <= 2 * nodes;  // pairs, of a mask with a name
  expect(few && std::min({nq, nk, d, dv}) > 0 && std::max({nq, nk, d, dv}) <= nodes, problem + " is not of its graph");
  const auto given = [&](const string& name, size_t rows, size_t columns) {
    Matrix m(rows * columns <= nodes ? rows : throw std::domain_error(problem + " is not of its graph"));
    for (size_t i = 0; i < rows; ++i)
      for (size_t t = 0; t < columns; ++t)
        m[i].push_back(in[at(name, i, t)] = table.empty()
                                                ? crc32(seed + " " + at(name, i, t)) * 69069U / 2147483648.0 - 1
                                                : given_word(table, at(name, i, t)));
    return m;
  };
  const bool of_x = w[1] == "gradient";
  const Matrix A1 = given(of_x ? "A1" : "Q", nq, d), Q = of_x ? product(A1, given("X", d, d)) : A1;
  const Matrix K = given(of_x ? "A2" : "K", nk, d);
  const Matrix V = of_x ? product(given("A3", nk, d), given("Y", d, dv)) : given("V", nk, dv);
  const double scale = of_x ? 1 : 1 / std::sqrt(static_cast<double>(d));
  Matrix P = product(Q, turned(K), scale);
  for (size_t i = 0; i < nq; ++i) {
    double sum = 0;
    for (size_t j = 0; j < nk; ++j) {
      const bool sees = mask == "full" || (mask == "causal" ? j + nq <= i + nk : mask.at(i * (nk + 1) + j) == '1');
      shown += sees ? "1" : "0";
      sum += P[i][j] = sees ? std::exp(P[i][j]) : 0;
    }
    for (double& p : P[i]) p /= sum > 0 ? sum : 1;
    out[at("l", i)] = sum, out[at("lse", i)] = std::log(sum), shown += "/";
  }
  expect(mask == "full" || mask == "causal" || shown == mask + "/", problem + " has no such mask");
  const Matrix O = product(P, V);
  put(out, "O", O);
  if (w[1] == "forward") return;
  in.merge(out), out.clear();
  const Matrix dO = given("dO", nq, dv);
  Matrix dS = product(dO, turned(V));
  for (size_t i = 0; i < nq; ++i) {
    double D = 0;
    for (size_t t = 0; t < dv; ++t) D += dO[i][t] * O[i][t];
    for (size_t j = 0; j < nk; ++j) dS[i][j] = P[i][j] * (dS[i][j] - D);
    in[at("D", i)] = D;
  }
  if (of_x) return put(out, "g", product(turned(A1), product(dS, K)));
  put(out, "dQ", product(dS, K, scale));
  put(out, "dK", product(turned(dS), Q, scale));
  put(out, "dV", product(turned(P), dO));
}
double compare(const Play& play, const string& seed, const Words& table) {
  Words in, out;
  define(play.head.at("problem"), seed, table, play.nodes.size(), in, out);
  std::vector<double> values;
  double largest = 0;
  for (const Node& node : play.nodes) {
    std::vector<double> x;
    for (const size_t p : node.parents) x.push_back(values[p]);
    claim(node.op != "input" || in.contains(node.name), node.name + " is no input of the problem");
    values.push_back(node.op == "input" ? in.at(node.name) : value_of(node, x));
    if (!node.output) continue;
    claim(out.contains(node.name), node.name + " is no output of the problem");
    const double right = out.at(node.name), difference = values.back() == right ? 0 : std::abs(values.back() - right);
    claim(difference <= 1e-9 * std::max(1.0, std::abs(right)), node.name + " has another value by definition");
    largest = std::max(largest, difference);
    out.erase(node.name);
  }
  for (const auto& [name, value] : out) claim(value == 0 || name[0] == 'l', "output " + name + " is missing");
  return largest;
}
int main(int count, char** arguments) try {
  expect(count >= 2 && count <= 4, "usage: replay CERTIFICATE [SEED [INPUTS]]");
  const Play play = read_play(std::ifstream(arguments[1], std::ios::binary));
  const std::vector<size_t> counts = replay(play);
  claim(counts == play.counts, "the moves count otherwise than the certificate says");
  const string problem = play.head.at("problem");
  Words table;
  std::ifstream words(count == 4 ? arguments[3] : "");
  for (string name, word; words >> name >> word;) table[name] = std::stod(word);
  expect(count < 4 || !table.empty(), arguments[count - 1] + string(" has no lines of a name and a word"));
  const size_t sets = table.empty() ? std::min(size_t{8}, 1 + 200'000 / (1 + play.nodes.size())) : 1;
  double difference = 0;
  for (size_t k = 0; k < sets && problem != "none"; ++k)
    difference = std::max(difference, compare(play, (count > 2 ? arguments[2] : "0") + string(k, '+'), table));
  std::printf("reads=%zu writes=%zu computed=%zu peak=%zu ", counts[0], counts[1], counts[2], counts[3]);
  return std::printf("io=%zu; %s: outputs differ by %.1e\n", counts[0] + counts[1], problem.c_str(), difference) < 0;
} catch (const std::exception& error) {
  const bool refused = dynamic_cast<const std::domain_error*>(&error) != nullptr;
  return std::fprintf(stderr, "%s: %s\n", refused ? "refused" : "cannot replay it", error.what()), refused ? 1 : 2;
}
