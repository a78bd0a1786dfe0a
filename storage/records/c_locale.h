// Gives a thread C's locale while a parser runs that expects the decimal point of the process's locale.

#ifndef TIDEMARK_STORAGE_RECORDS_C_LOCALE_H_
#define TIDEMARK_STORAGE_RECORDS_C_LOCALE_H_

#include <locale.h>

#include <new>

namespace tidemark::storage {

// While it lives, the calling thread has C's locale, with a point in its numbers. Lives and dies on one thread. Throws
// std::bad_alloc if there is no memory for the locale.
class CLocale {
 public:
  CLocale() : before_(uselocale(C())) {}
  ~CLocale() { uselocale(before_); }
  CLocale(const CLocale&) = delete;
  CLocale& operator=(const CLocale&) = delete;

 private:
  static locale_t C() {
    static const locale_t locale = New();  // lives as long as the process
    return locale;
  }
  static locale_t New() {
    const locale_t made = newlocale(LC_ALL_MASK, "C", nullptr);
    if (made == nullptr) throw std::bad_alloc();
    return made;
  }

  const locale_t before_;
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_RECORDS_C_LOCALE_H_
