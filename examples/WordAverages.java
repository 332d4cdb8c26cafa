// Sentence vectors in Java, without dependencies: reads an export to NumPy, a wheel or npm package.
//
//     java examples/WordAverages.java FOLDER               # compares 500 texts with conformance.json
//     java examples/WordAverages.java FOLDER QUERY < FILE  # the lines nearest to a query
//
// FOLDER has runtime.json, vocabulary.txt, model.safetensors and conformance.json, as
// xling_tf/models/multilingual-mini does.

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.text.Normalizer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.regex.Pattern;
import java.util.stream.IntStream;

public class WordAverages {
    // Spaces, controls, halves of pairs and what is never drawn.
    private static final Pattern BLANK = Pattern.compile(
        "[\\s\\x{0}-\\x{1f}\\x{7f}-\\x{a0}\\x{ad}\\x{34f}\\x{61c}\\x{115f}\\x{1160}\\x{1680}\\x{17b4}\\x{17b5}"
        + "\\x{180b}-\\x{180f}\\x{2000}-\\x{200f}\\x{2028}-\\x{202f}\\x{205f}-\\x{206f}\\x{2800}\\x{3000}"
        + "\\x{3164}\\x{fe00}-\\x{fe0f}\\x{feff}\\x{ffa0}\\x{fff0}-\\x{fff8}\\x{e0000}-\\x{e0fff}]*");
    private static final int MAX_EXPANSION = 4; // of the bytes of a text that NFC makes shorter

    private record Rule(Pattern pattern, String replacement) {}

    private final Map<String, Integer> rows = new HashMap<>();
    private final Map<Long, Integer> ngramRows = new HashMap<>();
    private final Map<String, ByteBuffer> tensors = new HashMap<>();
    private final List<Rule> rules = new ArrayList<>();
    private final Map<String, Object> text;
    private final int bits;
    private final int dim;

    public WordAverages(Path folder) throws IOException {
        Map<String, Object> settings = object(new Json(Files.readString(folder.resolve("runtime.json"))).value());
        text = object(settings.get("text"));
        bits = number(settings.getOrDefault("bits", 8.0));
        dim = number(settings.get("dim"));
        String vocabulary = Files.readString(folder.resolve("vocabulary.txt"));
        for (String word : vocabulary.substring(0, vocabulary.length() - 1).split("\n", -1)) {
            rows.put(word, rows.size());
        }
        readTensors(folder.resolve("model.safetensors"));
        if (text.get("ngrams") != null) {
            var buckets = tensors.get("ngram_buckets").asLongBuffer();
            for (int row = 0; row < buckets.limit(); row++) {
                ngramRows.put(buckets.get(row), row + 1); // row 0 is for the others
            }
        }
        for (Object rule : list(text.get("rules"))) {
            String pattern = (String) list(rule).get(0);
            for (var named : object(text.get("classes")).entrySet()) {
                var ranges = new StringBuilder();
                for (Object range : list(named.getValue())) {
                    ranges.append(String.format(
                        "\\x{%x}-\\x{%x}", number(list(range).get(0)), number(list(range).get(1))));
                }
                pattern = pattern.replace(named.getKey(), ranges);
            }
            String replacement = ((String) list(rule).get(1)).replace("$", "\\$").replaceAll("\\\\(\\d)", "\\$$1");
            rules.add(new Rule(Pattern.compile(pattern, Pattern.UNICODE_CASE), replacement));
        }
    }

    /** Returns the words of a text, at least one. */
    public List<String> words(String sentence) {
        int maxBytes = number(text.get("max_bytes"));
        // Half of a pair becomes a space.
        String some = sentence.replaceAll("[\\x{d800}-\\x{dfff}]", " ");
        some = firstBytes(Normalizer.normalize(firstBytes(some, MAX_EXPANSION * maxBytes), Normalizer.Form.NFC), maxBytes);
        if ((Boolean) text.get("lowercase")) {
            some = some.toLowerCase(Locale.ROOT);
        }
        for (Rule rule : rules) {
            some = rule.pattern.matcher(some).replaceAll(rule.replacement);
        }
        List<String> words = Arrays.stream(some.split(" ")).filter(word -> !word.isEmpty())
            .limit(number(text.get("max_tokens"))).toList();
        return words.isEmpty() ? List.of((String) text.get("empty")) : words;
    }

    /** Returns the row of a word in the vocabulary, or -1. */
    public int row(String word) {
        return rows.getOrDefault(word, -1);
    }

    /** Returns the rows of a word's n-grams. */
    public List<Integer> ngramRows(String word) {
        Map<String, Object> ngrams = object(text.get("ngrams"));
        int[] points = word.codePoints().limit(number(ngrams.get("max_characters"))).toArray();
        int[] marked = IntStream.concat(
            IntStream.concat(IntStream.of('<'), Arrays.stream(points)), IntStream.of('>')).toArray();
        List<Integer> found = new ArrayList<>();
        for (Object size : list(ngrams.get("sizes"))) {
            for (int start = 0; start + number(size) <= marked.length; start++) {
                String ngram = new String(marked, start, number(size));
                long hash = fingerprint(ngram.getBytes(StandardCharsets.UTF_8));
                long bucket = Long.remainderUnsigned(hash, number(ngrams.get("num_buckets")));
                found.add(ngramRows.getOrDefault(bucket, 0));
            }
        }
        return found;
    }

    /** Returns a vector of unit length; a blank text has zeros. */
    public float[] encode(String sentence) {
        float[] vector = new float[dim];
        if (BLANK.matcher(sentence.replaceAll("[\\x{d800}-\\x{dfff}]", " ")).matches()) {
            return vector;
        }
        double[] sums = new double[tensors.get("unknown_bias").limit() / 4];
        for (String word : words(sentence)) {
            if (row(word) >= 0) {
                add("words", row(word), sums);
            } else {
                double[] spelled = spell(word);
                Arrays.setAll(sums, i -> sums[i] + spelled[i]);
            }
        }
        double length = Math.sqrt(Math.max(Arrays.stream(sums).map(sum -> sum * sum).sum(), 1e-24));
        for (int i = 0; i < sums.length; i++) {
            vector[i] = (float) (sums[i] / length);
        }
        return vector;
    }

    /** Returns the rows of a corpus with the highest cosines to a query; blank texts match nothing. */
    public static List<Integer> search(float[] query, List<float[]> corpus, int topK) {
        return IntStream.range(0, corpus.size()).boxed()
            .filter(row -> dot(query, query) > 0 && dot(corpus.get(row), corpus.get(row)) > 0)
            .sorted(Comparator.comparingDouble(row -> -dot(query, corpus.get(row)))).limit(topK).toList();
    }

    public static double dot(float[] first, float[] second) {
        return IntStream.range(0, first.length).mapToDouble(i -> (double) first[i] * second[i]).sum();
    }

    private double[] spell(String word) {
        if (text.get("ngrams") == null) {
            return affine(new double[0], null, "unknown_bias");
        }
        double[] sums = new double[tensors.get("ngram_bias").limit() / 4];
        ngramRows(word).forEach(row -> add("ngrams", row, sums));
        double[] hidden = Arrays.stream(affine(sums, "ngram_kernel", "ngram_bias")).map(Math::tanh).toArray();
        return affine(hidden, "unknown_kernel", "unknown_bias");
    }

    private double[] affine(double[] vector, String kernel, String bias) {
        var biases = tensors.get(bias).asFloatBuffer();
        double[] sums = new double[biases.limit()];
        for (int j = 0; j < sums.length; j++) {
            sums[j] = biases.get(j);
            for (int i = 0; i < vector.length; i++) {
                sums[j] += vector[i] * tensors.get(kernel).getFloat(4 * (i * sums.length + j));
            }
        }
        return sums;
    }

    /** Adds a row of a table to sums. */
    private void add(String table, int row, double[] sums) {
        ByteBuffer numbers = tensors.get(table);
        float scale = tensors.get(table + "_scales").getFloat(4 * row);
        int width = sums.length * bits / 8;
        for (int i = 0; i < width; i++) {
            byte one = numbers.get(row * width + i);
            if (bits == 8) {
                sums[i] += one * scale;
            } else { // the lower half first; 0 to 15 stand for -8 to 7
                sums[2 * i] += ((one & 15) - 8) * scale;
                sums[2 * i + 1] += ((one >> 4 & 15) - 8) * scale;
            }
        }
    }

    private void readTensors(Path path) throws IOException {
        try (FileChannel file = FileChannel.open(path)) {
            ByteBuffer all = file.map(FileChannel.MapMode.READ_ONLY, 0, file.size()).order(ByteOrder.LITTLE_ENDIAN);
            int start = 8 + (int) all.getLong(0);
            byte[] header = new byte[start - 8];
            all.get(8, header);
            for (var named : object(new Json(new String(header, StandardCharsets.UTF_8)).value()).entrySet()) {
                if (!named.getKey().equals("__metadata__")) {
                    List<Object> ends = list(object(named.getValue()).get("data_offsets"));
                    int begin = number(ends.get(0));
                    ByteBuffer tensor = all.slice(start + begin, number(ends.get(1)) - begin);
                    tensors.put(named.getKey(), tensor.order(ByteOrder.LITTLE_ENDIAN));
                }
            }
        }
    }

    /** Cuts a text after some bytes of its UTF-8, with a space for an incomplete character. */
    private static String firstBytes(String text, int maxBytes) {
        int size = 0;
        for (int i = 0; i < text.length(); i += Character.charCount(text.codePointAt(i))) {
            int point = text.codePointAt(i);
            int bytes = point < 0x80 ? 1 : point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
            if (size + bytes > maxBytes) {
                return text.substring(0, i) + (size < maxBytes ? " " : "");
            }
            size += bytes;
        }
        return text;
    }

    // FarmHash's Fingerprint64 of at most 64 bytes: n-grams are not longer.
    private static final long K0 = 0xc3a5c85c97cb3127L;
    private static final long K1 = 0xb492b66fbe98f273L;
    private static final long K2 = 0x9ae16a3b2f90404fL;

    private static long mixed(long first, long second, long factor) {
        long half = shifted((first ^ second) * factor);
        return shifted((second ^ half) * factor) * factor;
    }

    private static long shifted(long number) {
        return number ^ number >>> 47;
    }

    static long fingerprint(byte[] bytes) {
        int size = bytes.length;
        ByteBuffer at = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
        long factor = K2 + 2L * size;
        if (size > 16) {
            long a = at.getLong(0) * (size <= 32 ? K1 : K2), b = at.getLong(8);
            long c = at.getLong(size - 8) * factor, d = at.getLong(size - 16) * K2;
            long left = Long.rotateRight(a + b, 43) + Long.rotateRight(c, 30) + d;
            long half = mixed(left, a + Long.rotateRight(b + K2, 18) + c, factor);
            if (size <= 32) {
                return half;
            }
            long e = at.getLong(16) * factor, f = at.getLong(24);
            long g = (left + at.getLong(size - 32)) * factor, h = (half + at.getLong(size - 24)) * factor;
            long last = Long.rotateRight(e + f, 43) + Long.rotateRight(g, 30) + h;
            return mixed(last, e + Long.rotateRight(f + a, 18) + g, factor);
        }
        if (size >= 8) {
            long first = at.getLong(0) + K2, last = at.getLong(size - 8);
            long left = Long.rotateRight(last, 37) * factor + first;
            return mixed(left, (Long.rotateRight(first, 25) + last) * factor, factor);
        }
        if (size >= 4) {
            long first = at.getInt(0) & 0xffffffffL, last = at.getInt(size - 4) & 0xffffffffL;
            return mixed(size + (first << 3), last, factor);
        }
        if (size == 0) {
            return K2;
        }
        long first = (bytes[0] & 255) + ((bytes[size / 2] & 255) << 8);
        long last = size + ((bytes[size - 1] & 255) << 2);
        return shifted(first * K2 ^ last * K0) * K2;
    }

    /** Reads JSON to maps, lists, strings, doubles, booleans and null. */
    private static final class Json {
        private final String source;
        private int at;

        Json(String source) {
            this.source = source;
        }

        Object value() {
            char first = next();
            at++;
            switch (first) {
                case '{':
                    Map<String, Object> members = new LinkedHashMap<>();
                    while (more('}')) {
                        String name = (String) value();
                        next();
                        at++; // the colon
                        members.put(name, value());
                    }
                    return members;
                case '[':
                    List<Object> values = new ArrayList<>();
                    while (more(']')) {
                        values.add(value());
                    }
                    return values;
                case '"':
                    return string();
                default:
                    int begin = at - 1;
                    while (at < source.length() && ",]} \n".indexOf(source.charAt(at)) < 0) {
                        at++;
                    }
                    String word = source.substring(begin, at);
                    return switch (word) {
                        case "true" -> true;
                        case "false" -> false;
                        case "null" -> null;
                        default -> Double.valueOf(word);
                    };
            }
        }

        private char next() {
            while (Character.isWhitespace(source.charAt(at))) {
                at++;
            }
            return source.charAt(at);
        }

        private boolean more(char end) {
            char found = next();
            at += found == end || found == ',' ? 1 : 0;
            return found != end;
        }

        private String string() {
            var text = new StringBuilder();
            while (source.charAt(at) != '"') {
                char one = source.charAt(at++);
                if (one == '\\') {
                    one = source.charAt(at++);
                    if (one == 'u') {
                        one = (char) Integer.parseInt(source.substring(at, at += 4), 16);
                    } else if ("bfnrt".indexOf(one) >= 0) {
                        one = "\b\f\n\r\t".charAt("bfnrt".indexOf(one));
                    }
                }
                text.append(one);
            }
            at++;
            return text.toString();
        }
    }

    @SuppressWarnings("unchecked")
    private static Map<String, Object> object(Object value) {
        return (Map<String, Object>) value;
    }

    @SuppressWarnings("unchecked")
    private static List<Object> list(Object value) {
        return (List<Object>) value;
    }

    private static int number(Object value) {
        return ((Double) value).intValue();
    }

    /** Prints how far this client is from conformance.json; ends with 1 if that is too far. */
    private void conform(Path path) throws IOException {
        Map<String, Object> file = object(new Json(Files.readString(path)).value());
        List<float[]> vectors = new ArrayList<>();
        int wrong = 0;
        double largest = 0;
        for (Object one : list(file.get("texts"))) {
            var expected = object(one);
            List<String> words = words((String) expected.get("text"));
            vectors.add(encode((String) expected.get("text")));
            List<Object> found = new ArrayList<>(words.stream().map(word -> (double) row(word)).toList());
            wrong += words.equals(expected.get("words")) && found.equals(expected.get("rows")) ? 0 : 1;
            List<Object> numbers = list(expected.get("vector"));
            for (int i = 0; i < numbers.size(); i++) {
                float actual = vectors.get(vectors.size() - 1)[i * number(file.get("step"))];
                largest = Math.max(largest, Math.abs(actual - (Double) numbers.get(i)));
            }
        }
        for (var spelled : object(file.get("ngrams")).entrySet()) {
            List<Object> found = new ArrayList<>(ngramRows(spelled.getKey()).stream().map(row -> (double) row).toList());
            wrong += found.equals(spelled.getValue()) ? 0 : 1;
        }
        for (Object one : list(file.get("searches"))) {
            float[] query = vectors.get(number(object(one).get("query")));
            List<Object> hits = list(object(one).get("hits"));
            List<Integer> found = search(query, vectors, Math.max(1, hits.size()));
            wrong += found.size() == hits.size() ? 0 : 1;
            for (int i = 0; i < Math.min(found.size(), hits.size()); i++) {
                wrong += found.get(i) == number(list(hits.get(i)).get(0)) ? 0 : 1;
                double score = (Double) list(hits.get(i)).get(1);
                largest = Math.max(largest, Math.abs(dot(query, vectors.get(found.get(i))) - score));
            }
        }
        System.out.printf(Locale.ROOT, "%d texts: %d differ; largest difference of a number %.1e%n",
            vectors.size(), wrong, largest);
        System.exit(wrong == 0 && largest <= (Double) file.get("tolerance") ? 0 : 1);
    }

    public static void main(String[] arguments) throws IOException {
        Path folder = Path.of(arguments[0]);
        WordAverages model = new WordAverages(folder);
        if (arguments.length == 1) {
            model.conform(folder.resolve("conformance.json"));
        }
        List<String> lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8)).lines().toList();
        float[] query = model.encode(arguments[1]);
        List<float[]> vectors = lines.stream().map(model::encode).toList();
        for (int row : search(query, vectors, 10)) {
            System.out.printf(Locale.ROOT, "%.2f %s%n", dot(query, vectors.get(row)), lines.get(row));
        }
    }
}
