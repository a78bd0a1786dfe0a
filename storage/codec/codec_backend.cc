#include "storage/codec/codec_backend.h"

namespace tidemark::storage {
namespace {

struct Runnable {
  Runnable() {
    for (const CodecBackend* backend : {Avx512CodecBackend(), Avx2CodecBackend(), &PortableCodecBackend()}) {
      if (backend != nullptr) backends[count++] = backend;
    }
  }
  std::array<const CodecBackend*, 3> backends;
  size_t count = 0;
};

}  // namespace

std::span<const CodecBackend* const> RunnableCodecBackends() {
  static const Runnable runnable;
  return std::span(runnable.backends).first(runnable.count);
}

const CodecBackend& BestCodecBackend() { return *RunnableCodecBackends().front(); }

}  // namespace tidemark::storage
