#pragma once
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "files/support.hpp"
#include "redblue/files/npy.hpp"
#include "redblue/files/safetensors.hpp"
#include "support/generators.hpp"
#include "support/paths.hpp"

/// The real program, run in a directory of its own.
namespace redblue::test {

using Args = std::vector<std::string>;
using Json = nlohmann::json;

struct Finished {
  int exit_code = -1;  ///< 128 + signal if it was killed
  std::string out, err;
  Json json() const { return Json::parse(out); }
};

inline std::string quoted(const std::string& word) {
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

/// A directory, and `redblue` run in it. Names of files are relative to it.
class Workplace {
 public:
  std::string operator/(const std::string& name) const { return directory_ / name; }
  /// All names here, hidden ones too.
  std::set<std::string> files() const {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(directory_ / ""))
      names.insert(entry.path().filename());
    return names;
  }

  /// `before` goes before the program on its command line in the shell: a limit, an environment.
  Finished run(const Args& args, const std::string& before = "") const {
    std::string command =
        "cd " + quoted(directory_ / "") + " && " + before + " exec " + quoted(redblue::test::program());
    for (const std::string& a : args) command += " " + quoted(a);
    const int status = std::system((command + " >" + quoted(logs_ / "out") + " 2>" + quoted(logs_ / "err")).c_str());
    Finished f;
    f.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    f.out = file::read_text(logs_ / "out");
    f.err = file::read_text(logs_ / "err");
    return f;
  }

  /// A file of fp32, or of any other type redblue stores.
  void npy(const std::string& name, std::vector<index_t> shape, const std::vector<double>& values,
           DType dtype = DType::f32) const {
    if (dtype == DType::f64)
      return file::write_npy(directory_ / name, file::c_order_tensor(dtype, std::move(shape), values.data()));
    const std::vector<float> narrow(values.begin(), values.end());
    file::write_npy(directory_ / name, file::c_order_tensor(DType::f32, std::move(shape), narrow.data()));
  }
  void zeros(const std::string& name, const std::vector<index_t>& shape) const {
    index_t words = 1;
    for (const index_t size : shape) words *= size;
    npy(name, shape, std::vector<double>(static_cast<std::size_t>(words)));
  }
  /// q, k, v as .npy, batch and heads left out of the shape as `rank` says; or in one safetensors file.
  void inputs(const Problem& p, const Data& x, std::size_t rank = 4, DType dtype = DType::f32) const {
    const auto shape = [&](index_t heads, index_t n, index_t d) {
      const std::vector<index_t> full = {p.batch, heads, n, d};
      return std::vector<index_t>(full.end() - static_cast<std::ptrdiff_t>(rank), full.end());
    };
    const index_t kv_heads = p.kv_heads.value_or(p.heads);
    npy("q.npy", shape(p.heads, p.n_q, p.d), x.q, dtype);
    npy("k.npy", shape(kv_heads, p.n_k, p.d), x.k, dtype);
    npy("v.npy", shape(kv_heads, p.n_k, p.d_v), x.v, dtype);
  }
  void safetensors(const std::string& name, const Problem& p, const Data& x,
                   const std::vector<std::string>& names = {"q", "k", "v"}) const {
    const std::vector<float> q(x.q.begin(), x.q.end()), k(x.k.begin(), x.k.end()), v(x.v.begin(), x.v.end());
    const index_t kv_heads = p.kv_heads.value_or(p.heads);
    file::write_safetensors(
        directory_ / name, {{names[0], file::c_order_tensor(DType::f32, {p.batch, p.heads, p.n_q, p.d}, q.data())},
                            {names[1], file::c_order_tensor(DType::f32, {p.batch, kv_heads, p.n_k, p.d}, k.data())},
                            {names[2], file::c_order_tensor(DType::f32, {p.batch, kv_heads, p.n_k, p.d_v}, v.data())}});
  }

 private:
  file::TemporaryDirectory directory_, logs_;
};

/// The numbers of a contiguous tensor of f32 or f64.
inline std::vector<double> numbers(const file::Tensor& t) {
  const auto n = static_cast<std::size_t>(t.size());
  if (t.dtype() == DType::f64) return {t.as<double>(), t.as<double>() + n};
  return {t.as<float>(), t.as<float>() + n};
}

inline void expect_fields(const Json& j, const std::set<std::string>& documented) {
  for (const std::string& name : documented) EXPECT_TRUE(j.contains(name)) << name << " is missing in " << j.dump();
}

/// The words of a command line.
inline Args operator""_args(const char* line, std::size_t size) {
  std::istringstream words(std::string(line, size));
  return {std::istream_iterator<std::string>(words), {}};
}
/// args with more behind.
inline Args operator+(Args args, const Args& more) {
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

/// A bad command line and what its message must say.
struct Bad {
  Args args;
  std::vector<std::string> says;
};
/// Refused with exit code 2, all of these words, and no file that was not there.
inline void expect_refused(const Workplace& w, const Bad& bad, const std::string& before = "") {
  std::string line;
  for (const std::string& a : bad.args) line += a + " ";
  SCOPED_TRACE(line);
  const auto files = w.files();
  const Finished f = w.run(bad.args, before);
  EXPECT_EQ(f.exit_code, 2) << f.err;
  EXPECT_EQ(f.out, "");
  for (const std::string& text : bad.says) EXPECT_THAT(f.err, testing::HasSubstr(text));
  EXPECT_EQ(w.files(), files) << "a file was left behind";
}

inline const Args kNpyFiles = {"--q", "q.npy", "--k", "k.npy", "--v", "v.npy", "--o", "o.npy", "--lse", "lse.npy"};
inline const Args kSafetensorsFiles = {"--input", "x.safetensors", "--output", "y.safetensors"};

}  // namespace redblue::test
