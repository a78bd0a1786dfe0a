// A thread's locale around a parser that expects the process's own in numbers.

#ifndef TIDEMARK_STORAGE_MANIFEST_C_LOCALE_H_
#define TIDEMARK_STORAGE_MANIFEST_C_LOCALE_H_

#include <locale.h>

namespace tidemark::storage {

// While it lives, the calling thread has C's locale, with a point in its numbers. Lives and dies on one thread.
class CLocale {
 public:
  CLocale() : before_(uselocale(C())) {}
  ~CLocale() { uselocale(before_); }
  CLocale(const CLocale&) = delete;
  CLocale& operator=(const CLocale&) = delete;

 private:
  static locale_t C() {
    static const locale_t locale = newlocale(LC_ALL_MASK, "C", nullptr);  // lives as long as the process
    return locale;
  }

  const locale_t before_;
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_MANIFEST_C_LOCALE_H_
