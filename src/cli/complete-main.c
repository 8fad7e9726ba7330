/* The build-time generator: rcp-completions bash|zsh|fish writes one script to standard output. */
#include "cli/complete.h"

#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
	static const struct {
		const char *shell;
		void (*write)(const struct cli_option *table, FILE *out);
	} shells[] = {
		{"bash", cli_complete_bash},
		{"zsh", cli_complete_zsh},
		{"fish", cli_complete_fish},
	};

	for (size_t i = 0; i < sizeof(shells) / sizeof(shells[0]); i++) {
		if (argc != 2 || strcmp(argv[1], shells[i].shell) != 0)
			continue;
		shells[i].write(cli_options, stdout);
		return fflush(stdout) || ferror(stdout) ? 1 : 0;
	}
	fprintf(stderr, "rcp-completions: say bash, zsh or fish\n");
	return 2;
}
