#pragma once
#include <cstdint>

#include "redblue/language/words.hpp"
#include "redblue/pebbling/graphs/graph.hpp"
#include "redblue/pebbling/graphs/sums.hpp"

/// Families of graphs on which the field tries its bounds. Each has its number of nodes as a formula beside it.
namespace redblue::pebbling {

/// Sums of k words each, in a complete tree: k^depth inputs, one output.
Graph k_ary_tree(Node k, Node depth);
Words k_ary_tree_nodes(Words k, Words depth);

/// y = A x. With Sums::k_ary the graph of Papp, Sobczyk & Yzelman (arXiv 2506.10854).
Graph matrix_vector(Node rows, Node columns, Sums sums);
Words matrix_vector_nodes(Words rows, Words columns, Sums sums);

/// height + 1 inputs in the lowest row; each node of the row above adds two neighbours; one output.
Graph pyramid(Node height);
Words pyramid_nodes(Words height);

/// Node (i, j) comes from (i-1, j) and (i, j-1), the input is (0, 0), the output the corner opposite: the diamond of
/// dynamic programs over two sequences.
Graph grid(Node rows, Node columns);
Words grid_nodes(Words rows, Words columns);

/// The butterfly of the fast Fourier transform over 2^stages words. Its nodes add and subtract, which makes it the
/// transform of Walsh and Hadamard: the same graph on real words.
Graph fft(Node stages);
Words fft_nodes(Words stages);

/// A chain whose nodes add all words of one of two groups in turn to the node before (Papp & Wattenhofer 2020).
Graph zipper(Node group, Node length);
Words zipper_nodes(Words group, Words length);

/// C = A B of m x k and k x n words.
Graph gemm(Node m, Node k, Node n, Sums sums);
Words gemm_nodes(Words m, Words k, Words n, Sums sums);

/// C = A B of matrices of 2^levels rows and columns, by Strassen's seven products at every level, with sums of two
/// words. With no level it is one product.
Graph strassen(Node levels);
Words strassen_nodes(Words levels);

}  // namespace redblue::pebbling
