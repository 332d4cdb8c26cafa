# Serves the exported models in a folder, such as serving/en-es (docs/deploy.md), with a key:
#   docker build -t xling_tf .
#   docker run -p 127.0.0.1:8501:8501 -e XLING_TF_API_KEY -v $PWD/serving:/models:ro xling_tf --model /models/en-es
FROM python:3.12-slim
WORKDIR /app
COPY pyproject.toml README.md LICENSE ./
COPY data data
COPY evaluation evaluation
COPY export export
COPY training training
COPY xling_tf xling_tf
RUN pip install --no-cache-dir '.[serving]'
USER nobody
EXPOSE 8501
# Models may take minutes to load, after which the server listens.
HEALTHCHECK --start-period=5m --interval=10s --timeout=5s CMD ["python", "-c", \
    "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8501/healthz', timeout=4)"]
ENTRYPOINT ["xling-tf", "serve", "--host", "0.0.0.0"]
