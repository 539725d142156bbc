/* A libaegis of the program's own, in which Portolan must not end up. */
#include <stdlib.h>

int aegis_init(void);
int aegis128l_encrypt_detached(void);
int aegis128l_decrypt_detached(void);

int aegis_init(void) { abort(); }
int aegis128l_encrypt_detached(void) { abort(); }
int aegis128l_decrypt_detached(void) { abort(); }
