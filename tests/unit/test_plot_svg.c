// SPDX-License-Identifier: Apache-2.0
// Text of any bytes comes out as XML that a parser takes.
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "stress/plot/svg.h"

static char *output;

static const char *escape(const char *text) {
    size_t size = 0;
    plot_svg_t svg = {.file = open_memstream(&output, &size)};
    cr_assert(svg.file != NULL);
    plot_svg_escape(&svg, text);
    cr_assert(fclose(svg.file) == 0);
    return output;
}

static void expect(const char *text, const char *wanted) {
    cr_assert(strcmp(escape(text), wanted) == 0, "'%s' instead of '%s'", output, wanted);
    free(output);
}

Test(plot_svg, escapes_what_xml_gives_a_meaning) {
    expect("a<b>&\"c'", "a&lt;b&gt;&amp;&quot;c'");
    expect("]]>", "]]&gt;");
    expect("", "");
}

Test(plot_svg, keeps_utf8) {
    expect("\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
}

Test(plot_svg, replaces_what_xml_cannot_hold) {
    expect("a\x01\n\x7f", "a???");
    expect("\xff\xc0\xaf", "???");
    expect("\xc3", "?");                // cut off
    expect("\xed\xa0\x80", "???");      // a surrogate
    expect("\xef\xbf\xbf", "???");      // U+FFFF
    expect("\xe0\x80\xaf", "???");      // overlong
    expect("\xc2\x80", "??");           // a control character
    expect("\xf4\x90\x80\x80", "????"); // above U+10FFFF
}

Test(plot_svg, shortens_a_long_title_and_stays_complete) {
    char title[300];
    memset(title, '<', sizeof title);
    title[sizeof title - 1] = '\0';
    size_t size = 0;
    FILE *file = open_memstream(&output, &size);
    cr_assert(file != NULL);
    plot_svg_t svg;
    plot_svg_begin(&svg, file, true, 100, title, "figure=1\n<other>=2\n");
    plot_svg_end(&svg);
    cr_assert(fclose(file) == 0);
    cr_assert(strstr(output, "figure=1\n&lt;other&gt;=2\n</desc>") != NULL);
    cr_assert(strstr(output, "&lt;...</text>") != NULL);
    cr_assert(strstr(output, "<<") == NULL);
    cr_assert(strstr(output, "</svg>\n</body></html>\n") != NULL);
    free(output);
}
