#include "evil.h"
int evil_daemon_main(const char *rcp, const char *dir, const char *only)
{
	(void)rcp, (void)dir, (void)only;
	printf("1..0 # SKIP\n");
	return 0;
}
