#pragma once
#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/paths.hpp"

namespace redblue::test {

/// One line of a table: column name -> text, empty where the table says nothing.
using TableRow = std::map<std::string, std::string>;

/// A file of comma-separated values without quotes, its first line the names of the columns.
inline std::vector<TableRow> read_table(const std::string& path) {
  std::ifstream in(path);
  const auto cells = [](const std::string& line) {
    std::vector<std::string> list;
    std::stringstream text(line + ",");
    for (std::string cell; std::getline(text, cell, ',');) list.push_back(cell);
    return list;
  };
  std::string line;
  if (!std::getline(in, line)) throw std::runtime_error("cannot read " + path);
  const std::vector<std::string> names = cells(line);
  std::vector<TableRow> rows;
  while (std::getline(in, line)) {
    const std::vector<std::string> values = cells(line);
    if (values.size() != names.size()) throw std::runtime_error(path + ": not as many cells as columns: " + line);
    for (TableRow& row = rows.emplace_back(); const std::string& name : names) row[name] = values[row.size()];
  }
  return rows;
}

/// Table 4.1 of the theory: n = 4096, causal off, one head.
inline std::vector<TableRow> table_of_theory_41() { return read_table(in_sources("/tests/data/table_4_1.csv")); }

/// Table 4.2: dQ, dK, dV; and table 4.3: dL/dX. The same sizes.
inline std::vector<TableRow> table_of_theory_42() { return read_table(in_sources("/tests/data/table_4_2.csv")); }
inline std::vector<TableRow> table_of_theory_43() { return read_table(in_sources("/tests/data/table_4_3.csv")); }

}  // namespace redblue::test
