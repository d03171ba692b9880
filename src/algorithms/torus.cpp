// Torus: reduce-scatter round the row, allreduce of the own share round the column, allgather round the row.
//   rounds  2(C-1) + 2(R-1) with R rows and C columns, any R C = P
//   sent    2(P-1)/P of the buffer by every rank
//   result  the same bits on every rank
// Mikami et al., arXiv:1811.05233, 2018; Ying et al., arXiv:1811.06992, 2018.
#include "algorithms/algorithms.h"
#include "algorithms/parts.h"

namespace trireme {

Program torus(int rank, int ranks, int rows) {
  const int columns = ranks / rows;
  const int row = rank / columns;
  const int column = rank % columns;
  const Circle across{columns};
  const Circle down{rows};
  const RingPlace in_row{.size = columns,
                         .at = column,
                         .previous = row * columns + across(column - 1),
                         .next = row * columns + across(column + 1)};
  const RingPlace in_column{
      .size = rows, .at = row, .previous = down(row - 1) * columns + column, .next = down(row + 1) * columns + column};
  const Chunks of_row{.each = rows};
  const Chunks of_column{.first = column * rows};

  Program program{.blocks = ranks};
  ring_reduce_scatter(program, in_row, of_row);
  ring_reduce_scatter(program, in_column, of_column);
  ring_allgather(program, in_column, of_column);
  ring_allgather(program, in_row, of_row);
  return program;
}

}  // namespace trireme
