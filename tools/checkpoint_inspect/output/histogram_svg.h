// A histogram of numbers, drawn as SVG. Pure.

#ifndef TIDEMARK_TOOLS_CHECKPOINT_INSPECT_OUTPUT_HISTOGRAM_SVG_H_
#define TIDEMARK_TOOLS_CHECKPOINT_INSPECT_OUTPUT_HISTOGRAM_SVG_H_

#include <string>

#include "tools/checkpoint_inspect/tensors/float_histogram.h"

namespace tidemark::inspect {

struct HistogramChart {
  std::string title;
  std::string description;
  HistogramBins bins;  // of equal width as they are drawn, whatever numbers are their edges
  bool log = false;    // the edges are those of SymmetricLog
};

// Texts are escaped here.
std::string HistogramSvg(const HistogramChart& chart);

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TOOLS_CHECKPOINT_INSPECT_OUTPUT_HISTOGRAM_SVG_H_
